//! What a guest's console says about its end.

/// What went wrong in a guest, as far as its console shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The kernel could not unpack itself: its own words.
    Damaged(String),
    /// The kernel found no first process: it can't read the image.
    NoImage,
    /// The first process can't be run by this kernel: another architecture.
    WrongProgram,
    /// The kernel ran out of memory.
    OutOfMemory,
    /// The kernel gave up: its own words.
    Panic(String),
    /// The kernel saw itself stand still: its own words.
    Stalled(String),
}

/// A text on the console, and what happened when it is there; it is given the whole line.
type Sign = (&'static str, fn(String) -> Trouble);

/// Signs in the console's text; the first that is found is what happened. More special signs come
/// before the general ones.
const SIGNS: &[Sign] = &[
    // `lib/decompress_*.c` of Linux; with `earlyprintk` they reach the console.
    ("data is corrupt", Trouble::Damaged),
    ("Decoding failed", Trouble::Damaged),
    ("uncompression error", Trouble::Damaged),
    ("-- System halted", Trouble::Damaged),
    ("Failed to execute /init (error -8)", |_| Trouble::WrongProgram),
    ("Requested init /init failed (error -8)", |_| Trouble::WrongProgram),
    ("Unable to mount root fs", |_| Trouble::NoImage),
    ("No working init found", |_| Trouble::NoImage),
    ("System is deadlocked on memory", |_| Trouble::OutOfMemory),
    ("Initramfs unpacking failed: write error", |_| Trouble::OutOfMemory),
    ("Out of memory: Killed process", |_| Trouble::OutOfMemory),
    ("Kernel panic - not syncing", Trouble::Panic),
    ("Oops:", Trouble::Panic),
    ("kernel BUG at", Trouble::Panic),
    ("watchdog: BUG: soft lockup", Trouble::Stalled),
    ("self-detected stall on CPU", Trouble::Stalled),
    ("detected stalls on CPUs", Trouble::Stalled),
    ("blocked for more than", Trouble::Stalled),
];

/// What went wrong, if the console shows it.
#[must_use]
pub fn trouble(console: &str) -> Option<Trouble> {
    SIGNS.iter().find_map(|(sign, of)| {
        let line = console.lines().find(|line| line.contains(sign))?;
        Some(of(without_stamp(line).to_owned()))
    })
}

/// Whether the kernel said that the system has ended: some machines can't switch themselves off. The last one
/// is said by a kernel that could not unpack itself.
#[must_use]
pub fn has_ended(console: &str) -> bool {
    ["reboot: System halted", "reboot: Power down", "reboot: Restarting system", "-- System halted"]
        .iter()
        .any(|sign| console.contains(sign))
}

/// The agent's own lines, without their mark.
pub fn agent_lines(console: &str) -> impl Iterator<Item = &str> {
    console.lines().filter_map(|line| without_stamp(line).strip_prefix("rtscope: "))
}

/// The last lines with letters in them, for a message.
#[must_use]
pub fn tail(console: &str, lines: usize) -> Vec<&str> {
    let said: Vec<&str> = console
        .lines()
        .map(str::trim)
        .filter(|line| line.chars().any(char::is_alphabetic))
        .collect();
    said[said.len().saturating_sub(lines)..].to_vec()
}

/// A line without the kernel's time stamp, as `[    1.234567] `.
fn without_stamp(line: &str) -> &str {
    let line = line.trim();
    let Some(rest) = line.strip_prefix('[') else { return line };
    match rest.split_once(']') {
        Some((stamp, text)) if stamp.trim().parse::<f64>().is_ok() => text.trim_start(),
        _ => line,
    }
}

impl Trouble {
    /// What happened and what to do, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Trouble::Damaged(said) => format!(
                "the kernel could not unpack itself ({said}): its image is damaged; copy it again, or build \
                 it again"
            ),
            Trouble::NoImage => {
                "the kernel found nothing to run: it was built without support for \
                an initramfs; build it with CONFIG_BLK_DEV_INITRD=y"
                    .to_owned()
            }
            Trouble::WrongProgram => "the kernel can't run this rtscope: it was built for another \
                architecture; name one for the guest with --program"
                .to_owned(),
            Trouble::OutOfMemory => {
                "the guest ran out of memory: give it more with --memory, or use smaller loads"
                    .to_owned()
            }
            Trouble::Panic(said) => format!("the kernel failed: {said}"),
            Trouble::Stalled(said) => format!("the kernel reports a stall: {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stock 6.1 whose first process is a program for arm64.
    const WRONG_PROGRAM: &str = "\
[    3.174498] Failed to execute /init (error -8)\r
[    3.175191] Kernel panic - not syncing: No working init found.  Try passing init= option to kernel. See Linux Documentation/admin-guide/init.rst for guidance.\r
[    3.175216] CPU: 0 PID: 1 Comm: swapper/0 Not tainted 6.1.0-56-amd64 #1  Debian 6.1.192-2\r
[    3.175260] Call Trace:\r
[    3.175271]  <TASK>\r
";

    /// A real-time 6.1 with a serial port that answers at once, and an agent that goes on.
    const GOES_ON: &str = "\
rtscope: phase 1/3 rest\r
rtscope: phase 2/3 message\r
rtscope: phase 3/3 disk\r
[    6.732700] irq 3: nobody cared (try booting with the \"irqpoll\" option)\r
[    6.733242] handlers:\r
";

    #[test]
    fn a_program_for_another_architecture_is_told_from_a_lost_image() {
        assert_eq!(trouble(WRONG_PROGRAM), Some(Trouble::WrongProgram));
        assert!(Trouble::WrongProgram.sentence().contains("--program"));
        let lost = WRONG_PROGRAM.lines().skip(1).collect::<Vec<_>>().join("\n");
        assert_eq!(trouble(&lost), Some(Trouble::NoImage));
    }

    #[test]
    fn a_kernel_that_can_t_unpack_itself_is_damaged_and_has_ended() {
        let console = "\n\nXZ-compressed data is corrupt\n\n -- System halted";
        let said = "XZ-compressed data is corrupt".to_owned();
        assert_eq!(trouble(console), Some(Trouble::Damaged(said)));
        assert!(has_ended(console));
    }

    #[test]
    fn a_panic_is_told_in_the_kernel_s_own_words_without_its_stamp() {
        let said = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000300";
        let console = format!("[    2.345678] {said}\r\n[    2.3] Call Trace:\r\n");
        assert_eq!(trouble(&console), Some(Trouble::Panic(said.to_owned())));
    }

    #[test]
    fn a_guest_that_goes_on_is_in_no_trouble() {
        assert_eq!(trouble(GOES_ON), None);
        assert_eq!(agent_lines(GOES_ON).last(), Some("phase 3/3 disk"));
        assert_eq!(tail(GOES_ON, 1), ["[    6.733242] handlers:"]);
        assert!(!has_ended(GOES_ON));
        assert!(has_ended("[    7.031244] reboot: Power down\r\n"));
    }
}
