--  The periodic real-time task.

with Ada.Real_Time; use Ada.Real_Time;

with Latencies;
with Options;

package Periodic is

   task type Worker
     (Stack : Positive)
     with Storage_Size => Stack
   is
      entry Place (Chosen : Options.Choices);
      --  Takes its CPU, policy and priority. What Linux raises is raised in the caller too.

      entry Start (Period : Time_Span; Cycles : Latencies.Count);
      --  Begins. The task ends by itself, after so many cycles (0: no limit) or when Ending wishes so.
   end Worker;

   procedure Work is null;
   --  The work of one period. No new, no Put, no protected object that a task of lower priority
   --  holds for long.

end Periodic;
