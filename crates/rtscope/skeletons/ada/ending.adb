package body Ending is

   Wished : Boolean := False with Atomic;

   function Is_Wished return Boolean is (Wished);

   procedure Wish is
   begin
      Wished := True;
   end Wish;

   protected body Signals is
      procedure On_Signal is
      begin
         Wished := True;
      end On_Signal;

      procedure On_Termination is
      begin
         Wished := True;
      end On_Termination;
   end Signals;

end Ending;
