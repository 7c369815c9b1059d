--  A periodic real-time application: edit Periodic.Work.

with Ada.Command_Line;      use Ada.Command_Line;
with Ada.Exceptions;        use Ada.Exceptions;
with Ada.Real_Time;         use Ada.Real_Time;
with Ada.Strings.Unbounded; use Ada.Strings.Unbounded;
with Ada.Text_IO;           use Ada.Text_IO;

with Latencies;
with Linux;
with Options;
with Periodic;

procedure Main is

   Exit_Usage : constant Exit_Status := 64;

   procedure Say (Text : String);
   procedure Run (Chosen : Options.Choices);

   procedure Say (Text : String) is
   begin
      Put_Line (Standard_Error, "skeleton_name: " & Text);
   end Say;

   --  Until the task has ended.
   procedure Run (Chosen : Options.Choices) is
      Worker : Periodic.Worker (Stack => 1_024 * 1_024);
   begin
      Worker.Place (Chosen);
      Worker.Start (Microseconds (Chosen.Period_Us), Chosen.Cycles);
   end Run;

   Chosen : Options.Choices;

begin
   Chosen := Options.Read;
   if Chosen.Help then
      Options.Print_Help;
      return;
   end if;
   Linux.Lock_Memory;
   Run (Chosen);
   Latencies.Print;
   if Length (Chosen.Histogram) > 0 then
      Latencies.Write (To_String (Chosen.Histogram));
   end if;
exception
   when Wrong : Options.Wrong =>
      Say (Exception_Message (Wrong) & "; --help lists the options");
      Set_Exit_Status (Exit_Usage);
   when Refusal : Linux.Refused =>
      Say (Exception_Message (Refusal));
      Set_Exit_Status (Failure);
   when Refusal : Linux.Not_Permitted =>
      Say (Exception_Message (Refusal));
      Put_Line (Standard_Error, "To get permission: run it as root; or");
      Put_Line (Standard_Error, "  sudo setcap cap_sys_nice,cap_ipc_lock+ep ./skeleton_name");
      Put_Line
        (Standard_Error,
         "or lines in /etc/security/limits.d for your user, and a new login:");
      Put_Line (Standard_Error, "  USER - rtprio 98");
      Put_Line (Standard_Error, "  USER - memlock unlimited");
      Put_Line (Standard_Error, "To try it without: --policy other.");
      Set_Exit_Status (Failure);
   when Refusal : Name_Error | Use_Error | Device_Error =>
      Say ("can't write " & To_String (Chosen.Histogram) & ": " & Exception_Message (Refusal));
      Set_Exit_Status (Failure);
end Main;
