--  Latencies, counted in memory that is there from the start: from the programmed instant to the first
--  clock reading after it.

with Ada.Real_Time; use Ada.Real_Time;

package Latencies is

   type Count is range 0 .. 2**63 - 1;

   procedure Note (Latency : Time_Span);
   procedure Note_Skipped (Periods : Count);

   function Cycles return Count;

   procedure Print;
   --  One line on standard output.

   procedure Write (Path : String);
   --  Writes a histogram as cyclictest does: rtscope import reads it.

end Latencies;
