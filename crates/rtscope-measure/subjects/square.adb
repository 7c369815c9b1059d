--  A square wave with delay until: PROGRAM LINE FREQUENCY. LINE is memory:NAME.

with Ada.Command_Line;  use Ada.Command_Line;
with Ada.Real_Time;     use Ada.Real_Time;
with Ada.Text_IO;       use Ada.Text_IO;
with Interfaces;        use Interfaces;
with Interfaces.C;      use Interfaces.C;
with System;            use System;
with System.Storage_Elements; use System.Storage_Elements;

procedure Square is

   type Words is record
      Level   : Unsigned_32;
      Unused  : Unsigned_32;
      Changes : Unsigned_64;
   end record with Volatile;

   --  The kernel's numbers: O_RDWR, PROT_READ or PROT_WRITE, MAP_SHARED.
   Read_Write    : constant int := 2;
   Access_Both   : constant int := 3;
   Map_Shared    : constant int := 1;
   Line_Bytes    : constant size_t := 64;

   function C_Open (Path : char_array; Flags : int) return int
     with Import, Convention => C, External_Name => "open";
   function C_Mmap
     (At_Address : Address; Bytes : size_t; Protection, Flags, File : int; Offset : long)
      return Address
     with Import, Convention => C, External_Name => "mmap";

   Failed : constant Address := To_Address (Integer_Address'Last);
   Prefix : constant String := "memory:";

begin
   if Argument_Count /= 2
     or else Argument (1)'Length <= Prefix'Length
     or else Argument (1) (1 .. Prefix'Length) /= Prefix
   then
      Put_Line (Standard_Error, "usage: " & Command_Name & " memory:NAME FREQUENCY");
      Set_Exit_Status (64);
      return;
   end if;
   declare
      Name : constant String := Argument (1) (Prefix'Length + 1 .. Argument (1)'Last);
      Path : constant String := "/dev/shm/rtscope-line-" & Name;
      File : constant int := C_Open (To_C (Path), Read_Write);
      Memory : constant Address :=
        C_Mmap (Null_Address, Line_Bytes, Access_Both, Map_Shared, File, 0);
      Half_Ns : constant Long_Float := 0.5E9 / Long_Float'Value (Argument (2));
      Start : constant Time := Clock;
      Edge  : Long_Float := 0.0;
   begin
      if Memory = Failed then
         Put_Line (Standard_Error, "can't map " & Path);
         Set_Exit_Status (1);
         return;
      end if;
      declare
         Line : Words with Import, Address => Memory;
      begin
         loop
            Edge := Edge + 1.0;
            delay until Start + To_Time_Span (Duration (Edge * Half_Ns / 1.0E9));
            Line.Level := 1 - Line.Level;
            Line.Changes := Line.Changes + 1;
         end loop;
      end;
   end;
end Square;
