//! Words that are an address or the host's name, and words that can't be.

use super::HIDDEN;

/// Names that machines get without anybody having chosen them, and words that the kernel uses of itself. They identify
/// nobody, and the diagnosis reads them: `realtime` in a release for example.
const COMMON: [&str; 30] = [
    "acpi",
    "android",
    "arch",
    "beaglebone",
    "build",
    "buildroot",
    "debian",
    "dwc",
    "dynamic",
    "fedora",
    "generic",
    "irq",
    "lazy",
    "linux",
    "localhost",
    "lowlatency",
    "orangepi",
    "otg",
    "preempt",
    "raspberry",
    "raspberrypi",
    "raspi",
    "realtime",
    "rpi",
    "rt",
    "smp",
    "timer",
    "ubuntu",
    "usb",
    "v8",
];

/// A text without the host's name where it is a whole word, in any case. A word in a path isn't one, and the part of
/// the name before the first dot counts as the name as well.
pub(super) fn without_host(text: &str, host: &str) -> String {
    let short = host.split('.').next().unwrap_or_default();
    let whole = without_word(text, host);
    if short == host { whole } else { without_word(&whole, short) }
}

fn without_word(text: &str, host: &str) -> String {
    // A release has words such as rt7 and v8.
    let digits = host.strip_prefix("rt").or_else(|| host.strip_prefix('v')).unwrap_or(host);
    let is_release = digits.chars().all(|c| c.is_ascii_digit());
    if host.is_empty() || is_release || COMMON.contains(&host.to_lowercase().as_str()) {
        return text.to_owned();
    }
    without_whole(text, host, |c| c.is_alphanumeric() || matches!(c, '_' | '/'))
}

/// A text without a word where no such character is beside it, in any case.
fn without_whole(text: &str, word: &str, is_part: impl Fn(char) -> bool + Copy) -> String {
    // ASCII only, so that places in both texts are the same.
    let (lower, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    let mut hidden = String::new();
    let mut done = 0;
    for (start, _) in lower.match_indices(&word) {
        let end = start + word.len();
        let is_whole = !text[..start].ends_with(is_part) && !text[end..].starts_with(is_part);
        if is_whole {
            hidden.push_str(&text[done..start]);
            hidden.push_str(HIDDEN);
            done = end;
        }
    }
    hidden + &text[done..]
}

/// A text without the name of a network card that somebody chose. The kernel puts it into names of interrupts and
/// threads: `maria0-rx-1`, `napi/maria0-8193`.
pub(super) fn without_card(text: &str, card: &str) -> String {
    /// Characters of the name of a thread, of which the kernel may show no more.
    const THREAD_NAME: usize = 15;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let text = without_whole(text, card, is_part);
    if text.len() != THREAD_NAME {
        return text;
    }
    let starts = (3..card.len()).rev().filter_map(|length| card.get(..length));
    let mut cut = starts.filter_map(|start| text.strip_suffix(start));
    let cut = cut.find(|rest| !rest.is_empty() && !rest.ends_with(is_part));
    cut.map_or(text.clone(), |rest| format!("{rest}{HIDDEN}"))
}

/// Whether the kernel or systemd gives such a name to a network card: `eth0`, `enp3s0f1np1`, `wlan0`, `can1`, `enx` with
/// an address.
pub(super) fn is_usual_card(name: &str) -> bool {
    const NUMBERED: [&str; 11] =
        ["can", "eth", "ib", "lan", "mlan", "sl", "swp", "usb", "wan", "wlan", "wwan"];
    // Parts of the place of a card, each before a number: bus, slot, function, port, on-board index.
    const PARTS: &str = "abcdfinoprsuvxP";
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if NUMBERED.iter().any(|kind| name.strip_prefix(kind).is_some_and(is_number)) {
        return true;
    }
    let kinds = ["en", "ib", "sl", "wl", "ww"];
    let Some(place) = kinds.iter().find_map(|kind| name.strip_prefix(kind)) else { return false };
    if place.strip_prefix('x').is_some_and(|address| address.len() == 12 && is_hex(address)) {
        return true;
    }
    let letters = place.split(|c: char| c.is_ascii_digit());
    let mut are_parts =
        letters.map(|part| part.len() <= 2 && part.chars().all(|c| PARTS.contains(c)));
    // A slot or an index has at most five digits.
    let mut numbers = place.split(|c: char| !c.is_ascii_digit());
    place.ends_with(|c: char| c.is_ascii_digit())
        && are_parts.all(|is_part| is_part)
        && numbers.all(|digits| digits.len() <= 5)
}

/// A text without addresses of networks (48 bits, IPv4, IPv6) and without UUIDs.
pub(super) fn without_addresses(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.');
    let mut hidden = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        hidden.push_str(&without_address(token));
        let other = after.find(is_part).unwrap_or(after.len());
        hidden.push_str(&after[..other]);
        rest = &after[other..];
    }
    hidden
}

/// A word without the address in it: the whole word is hidden, except where an address follows `enx` or a hyphen.
fn without_address(token: &str) -> String {
    if is_address(token) {
        return HIDDEN.to_owned();
    }
    let part = |part: &str| {
        // Predictable names of network cards are made of their address: enx001122334455.
        let card = ["enx", "wlx", "wwx"].into_iter().find(|kind| part.starts_with(kind));
        match card {
            Some(kind) if is_bare_mac(&part[3..]) => kind.to_owned(),
            _ if is_address(part) => HIDDEN.to_owned(),
            _ => part.to_owned(),
        }
    };
    token.split('-').map(part).collect::<Vec<_>>().join("-")
}

/// Twelve hexadecimal digits, and what a driver adds.
fn is_bare_mac(text: &str) -> bool {
    text.len() >= 12 && text.is_char_boundary(12) && is_hex(&text[..12])
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_address(token: &str) -> bool {
    let token = token.trim_matches(['.', '-']);
    let lengths = |mark: char| {
        let parts: Vec<&str> = token.split(mark).collect();
        let is_hex = parts.iter().all(|part| is_hex(part));
        if is_hex { parts.iter().map(|part| part.len()).collect() } else { Vec::new() }
    };
    let is_mac = [':', '-'].into_iter().any(|mark| {
        let lengths = lengths(mark);
        // A boot loader puts the kind of network before it: 01-aa-bb-cc-dd-ee-ff.
        (6..=7).contains(&lengths.len()) && lengths.iter().all(|length| *length == 2)
    });
    let is_other_mac = lengths('.') == [4, 4, 4]
        || (token.len() == 12
            && is_hex(token)
            && token.contains(|c: char| c.is_ascii_alphabetic()));
    let is_uuid = lengths('-') == [8, 4, 4, 4, 12];
    // Without hyphens: the identifier of a machine or a container.
    let is_bare = [32, 40, 64].contains(&token.len()) && is_hex(token);
    is_mac || is_other_mac || is_uuid || is_bare || is_ip4(token) || is_ip6(token)
}

/// Four numbers below 256, with a port or without.
fn is_ip4(token: &str) -> bool {
    let octets: Vec<&str> = token.split(':').next().unwrap_or_default().split('.').collect();
    octets.len() == 4 && octets.iter().all(|part| part.parse::<u8>().is_ok())
}

fn is_ip6(token: &str) -> bool {
    // Three numbers with colons are the place of a device on a bus: 0000:00:1f.
    token.parse::<std::net::Ipv6Addr>().is_ok() && token.trim_matches(':').contains(':')
}

/// Whether a word can be the name of a parameter, and isn't an address.
pub(super) fn is_plain_name(word: &str) -> bool {
    word.len() <= 40
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && without_addresses(word) == word
}

/// Whether a value has only characters of lists of CPUs, numbers and words, and is no path and no address.
pub(super) fn is_plain_value(value: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ",-_:+=*!./\"".contains(c);
    value.len() <= 200
        && value.chars().all(is_plain)
        && value.split('/').skip(1).all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        && without_addresses(value) == value
}
