--  What the language doesn't have: locked memory, and a thread's policy, priority and CPU by number.

package Linux is

   type Policy is (Other, Fifo, Rr);

   subtype Priority_Number is Integer range 0 .. 99;
   subtype Cpu_Number is Integer range 0 .. 1_023;

   Refused : exception;
   --  The kernel refused; the message says what and why.

   Not_Permitted : exception;
   --  The kernel refused for want of a permission.

   procedure Lock_Memory;
   --  Locks all memory that the process has and will have. Raises Refused, Not_Permitted.

   procedure Prefault_Stack;
   --  Touches the stack of the calling task, more than its work will ever use: locked memory still is
   --  faulted in at its first use.

   procedure Run_On (Cpu : Cpu_Number);
   --  Keeps the calling task on a CPU. Raises Refused, Not_Permitted.

   procedure Run_As (Asked : Policy; Priority : Priority_Number);
   --  Gives the calling task a policy and a priority. Raises Refused, Not_Permitted.

end Linux;
