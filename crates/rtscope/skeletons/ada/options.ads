--  The command line.

with Ada.Strings.Unbounded; use Ada.Strings.Unbounded;

with Latencies;
with Linux;

package Options is

   Wrong : exception;
   --  The command line makes no sense; the message says why.

   type Cpu_Choice (Is_Given : Boolean := False) is record
      case Is_Given is
         when True  => Number : Linux.Cpu_Number;
         when False => null;
      end case;
   end record;

   type Choices is record
      Period_Us : Positive := 1_000;
      Policy    : Linux.Policy := Linux.Fifo;
      Priority  : Linux.Priority_Number := 80;
      Cpu       : Cpu_Choice;
      Cycles    : Latencies.Count := 0;  --  until a signal
      Histogram : Unbounded_String;      --  empty: none
      Help      : Boolean := False;
   end record;

   function Read return Choices;
   --  Raises Wrong.

   procedure Print_Help;

end Options;
