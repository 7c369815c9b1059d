with GNAT.OS_Lib;  use GNAT.OS_Lib;
with Interfaces;   use Interfaces;
with Interfaces.C; use Interfaces.C;

package body Linux is

   --  Numbers of the kernel's interface.
   Lock_Current : constant int := 1;
   Lock_Future  : constant int := 2;

   --  Error numbers: EPERM, EAGAIN, ENOMEM.
   Permission : constant := 1;
   Again      : constant := 11;
   No_Memory  : constant := 12;

   Numbers : constant array (Policy) of int := (Other => 0, Fifo => 1, Rr => 2);

   --  A bit for each CPU.
   type Mask is array (Natural range 0 .. 15) of Unsigned_64 with Convention => C;

   type Parameters is record
      Priority : int;
   end record with Convention => C;

   function C_Mlockall (Flags : int) return int
     with Import, Convention => C, External_Name => "mlockall";
   function C_Setaffinity (Thread : int; Bytes : size_t; Cpus : Mask) return int
     with Import, Convention => C, External_Name => "sched_setaffinity";
   function C_Setscheduler (Thread, Policy : int; Value : access Parameters) return int
     with Import, Convention => C, External_Name => "sched_setscheduler";

   --  The calling thread, where a thread's number is asked.
   Self : constant int := 0;

   procedure Check (Answer : int; What : String);

   procedure Check (Answer : int; What : String) is
   begin
      if Answer = 0 then
         return;
      end if;
      case Errno is
         when Permission | Again | No_Memory =>
            raise Not_Permitted with What & ": " & Errno_Message;
         when others =>
            raise Refused with What & ": " & Errno_Message;
      end case;
   end Check;

   procedure Lock_Memory is
   begin
      Check (C_Mlockall (Lock_Current + Lock_Future), "can't lock memory");
   end Lock_Memory;

   procedure Prefault_Stack is
      Bytes : array (1 .. 256 * 1_024) of Unsigned_8 with Volatile;
   begin
      for I in Bytes'Range loop
         if I mod 1_024 = 1 then
            Bytes (I) := 0;
         end if;
      end loop;
   end Prefault_Stack;

   procedure Run_On (Cpu : Cpu_Number) is
      Cpus : Mask := (others => 0);
   begin
      Cpus (Cpu / 64) := Shift_Left (1, Cpu mod 64);
      Check (C_Setaffinity (Self, Mask'Size / 8, Cpus), "can't run on CPU" & Cpu'Image);
   end Run_On;

   procedure Run_As (Asked : Policy; Priority : Priority_Number) is
      Value : aliased Parameters := (Priority => int (Priority));
   begin
      Check
        (C_Setscheduler (Self, Numbers (Asked), Value'Access),
         "can't run as " & Asked'Image & Priority'Image);
   end Run_As;

end Linux;
