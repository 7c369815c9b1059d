with Ada.Command_Line; use Ada.Command_Line;
with Ada.Text_IO;      use Ada.Text_IO;

package body Options is

   use type Linux.Policy;

   function Number (Option, Text : String; Min, Max : Latencies.Count) return Latencies.Count;
   function Policy_Of (Text : String) return Linux.Policy;
   procedure Take (Option, Value : String; Into : in out Choices);

   function Number (Option, Text : String; Min, Max : Latencies.Count) return Latencies.Count is
      use type Latencies.Count;
      Value : Latencies.Count;
   begin
      Value := Latencies.Count'Value (Text);
      if Value not in Min .. Max then
         raise Constraint_Error;
      end if;
      return Value;
   exception
      when Constraint_Error =>
         raise Wrong with Option & ": a number from" & Min'Image & " to" & Max'Image;
   end Number;

   function Policy_Of (Text : String) return Linux.Policy is
   begin
      if Text = "fifo" then
         return Linux.Fifo;
      elsif Text = "rr" then
         return Linux.Rr;
      elsif Text = "other" then
         return Linux.Other;
      end if;
      raise Wrong with "--policy: fifo, rr or other";
   end Policy_Of;

   procedure Take (Option, Value : String; Into : in out Choices) is
   begin
      if Option = "--period-us" then
         Into.Period_Us := Positive (Number (Option, Value, 50, 10_000_000));
      elsif Option = "--policy" then
         Into.Policy := Policy_Of (Value);
      elsif Option = "--priority" then
         Into.Priority := Integer (Number (Option, Value, 1, 99));
      elsif Option = "--cpu" then
         Into.Cpu := (True, Integer (Number (Option, Value, 0, 1_023)));
      elsif Option = "--cycles" then
         Into.Cycles := Number (Option, Value, 0, Latencies.Count'Last);
      elsif Option = "--histogram" then
         Into.Histogram := To_Unbounded_String (Value);
      else
         raise Wrong with Option & ": there is no such option";
      end if;
   end Take;

   function Read return Choices is
      Chosen : Choices;
      I      : Positive := 1;
   begin
      if Argument_Count = 1 and then Argument (1) = "--help" then
         Chosen.Help := True;
         return Chosen;
      end if;
      while I <= Argument_Count loop
         if I = Argument_Count then
            raise Wrong with Argument (I) & ": an option with a value is expected";
         end if;
         Take (Argument (I), Argument (I + 1), Chosen);
         I := I + 2;
      end loop;
      if Chosen.Policy = Linux.Other then
         Chosen.Priority := 0;
      end if;
      return Chosen;
   end Read;

   procedure Print_Help is
   begin
      Put_Line ("usage: skeleton_name [OPTION VALUE]...");
      New_Line;
      Put_Line ("  --period-us N      period, 50 to 10000000 us [1000]");
      Put_Line ("  --policy NAME      fifo, rr or other [fifo]");
      Put_Line ("  --priority N       1 to 99 for fifo and rr [80]");
      Put_Line ("  --cpu N            the only CPU to run on [any]");
      Put_Line ("  --cycles N         end after so many; 0 runs until SIGINT or SIGTERM [0]");
      Put_Line ("  --histogram FILE   write the latencies there, as cyclictest does");
   end Print_Help;

end Options;
