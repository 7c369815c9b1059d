with Ending;
with Linux;

package body Periodic is

   use type Latencies.Count;

   procedure Repeat (Period : Time_Span; Cycles : Latencies.Count);

   procedure Repeat (Period : Time_Span; Cycles : Latencies.Count) is
      Next : Time := Clock + Period;
      Late : Time_Span;
   begin
      while not Ending.Is_Wished and then (Cycles = 0 or else Latencies.Cycles < Cycles) loop
         --  Until an instant, not for a time: what a period takes too long is not added to the next.
         delay until Next;
         Latencies.Note (Clock - Next);
         Work;
         Next := Next + Period;
         --  Overrun: periods whose begin has passed are skipped and counted, so that the next one is
         --  again on the grid and a backlog can't build up.
         Late := Clock - Next;
         if Late > Time_Span_Zero then
            declare
               Periods : constant Positive := Late / Period + 1;
            begin
               Latencies.Note_Skipped (Latencies.Count (Periods));
               Next := Next + Periods * Period;
            end;
         end if;
      end loop;
   end Repeat;

   task body Worker is
      Every : Time_Span;
      Limit : Latencies.Count;
   begin
      accept Place (Chosen : Options.Choices) do
         Linux.Prefault_Stack;
         if Chosen.Cpu.Is_Given then
            Linux.Run_On (Chosen.Cpu.Number);
         end if;
         Linux.Run_As (Chosen.Policy, Chosen.Priority);
      end Place;
      accept Start (Period : Time_Span; Cycles : Latencies.Count) do
         Every := Period;
         Limit := Cycles;
      end Start;
      Repeat (Every, Limit);
      Ending.Wish;
   exception
      when Linux.Refused | Linux.Not_Permitted =>
         null;  --  the caller of Place tells it
   end Worker;

end Periodic;
