with Ada.Text_IO; use Ada.Text_IO;

package body Latencies is

   --  Of 1 us; what is later is an overflow.
   Last_Bucket : constant := 9_999;

   Nanosecond : constant Time_Span := Nanoseconds (1);

   Buckets  : array (Count range 0 .. Last_Bucket) of Count := (others => 0);
   Overflow : Count := 0;
   Noted    : Count := 0;
   Skipped  : Count := 0;
   Min_Ns   : Count := Count'Last;
   Max_Ns   : Count := 0;
   Sum_Ns   : Count := 0;

   function Digits_Of (Value : Count; Width : Positive) return String;
   function Min_Us return Count is (if Noted = 0 then 0 else Min_Ns / 1_000);
   function Avg_Us return Count is (if Noted = 0 then 0 else Sum_Ns / Noted / 1_000);
   function Max_Us return Count is (Max_Ns / 1_000);
   function Plain (Value : Count) return String is (Digits_Of (Value, 1));

   --  At least so many digits, filled up with zeros.
   function Digits_Of (Value : Count; Width : Positive) return String is
      Image : constant String := Value'Image;
      Bare  : constant String := Image (Image'First + 1 .. Image'Last);
      Fill  : constant String (1 .. Integer'Max (0, Width - Bare'Length)) := (others => '0');
   begin
      return Fill & Bare;
   end Digits_Of;

   procedure Note (Latency : Time_Span) is
      Ns : constant Count := Count (Integer'Max (0, Latency / Nanosecond));
      Us : constant Count := Ns / 1_000;
   begin
      if Us <= Last_Bucket then
         Buckets (Us) := Buckets (Us) + 1;
      else
         Overflow := Overflow + 1;
      end if;
      Min_Ns := Count'Min (Min_Ns, Ns);
      Max_Ns := Count'Max (Max_Ns, Ns);
      Sum_Ns := Sum_Ns + Ns;
      Noted := Noted + 1;
   end Note;

   procedure Note_Skipped (Periods : Count) is
   begin
      Skipped := Skipped + Periods;
   end Note_Skipped;

   function Cycles return Count is (Noted);

   procedure Print is
   begin
      Put_Line
        (Plain (Noted) & " cycles, " & Plain (Skipped) & " skipped; latency min "
         & Plain (Min_Us) & " avg " & Plain (Avg_Us) & " max " & Plain (Max_Us) & " us");
   end Print;

   procedure Write (Path : String) is
      File : File_Type;
   begin
      Create (File, Out_File, Path);
      Put_Line (File, "# Histogram");
      for Us in Buckets'Range loop
         Put_Line (File, Digits_Of (Us, 6) & " " & Digits_Of (Buckets (Us), 6));
      end loop;
      Put_Line (File, "# Total: " & Digits_Of (Noted - Overflow, 9));
      Put_Line (File, "# Min Latencies: " & Digits_Of (Min_Us, 5));
      Put_Line (File, "# Avg Latencies: " & Digits_Of (Avg_Us, 5));
      Put_Line (File, "# Max Latencies: " & Digits_Of (Max_Us, 5));
      Put_Line (File, "# Histogram Overflows: " & Digits_Of (Overflow, 5));
      Close (File);
   end Write;

end Latencies;
