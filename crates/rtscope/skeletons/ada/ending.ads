--  The wish that the program ends: a signal, or all cycles done.

with Ada.Interrupts.Names;

package Ending is

   pragma Unreserve_All_Interrupts;

   function Is_Wished return Boolean;
   --  Takes no lock: a real-time task may ask.

   procedure Wish;

private

   protected Signals is
      procedure On_Signal
        with Attach_Handler => Ada.Interrupts.Names.SIGINT;
      procedure On_Termination
        with Attach_Handler => Ada.Interrupts.Names.SIGTERM;
   end Signals;

end Ending;
