//! The frames of a network sampler, as one line of a plan: `raw over=veth size=64 timeout=500us`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    text::{Problem, suggest},
    time::Nanos,
};

/// What a thread does at an activation besides waking up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkSampler {
    /// Nothing: its wake-up is measured.
    #[default]
    Off,
    /// Send a frame and wait until it is back.
    Frames(FramePath),
}

impl NetworkSampler {
    /// The path of the frames, if there are any.
    #[must_use]
    pub fn path(&self) -> Option<&FramePath> {
        match self {
            NetworkSampler::Off => None,
            NetworkSampler::Frames(path) => Some(path),
        }
    }
}

/// How a frame goes out and comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramePath {
    pub transport: FrameTransport,
    pub route: FrameRoute,
    /// Bytes of a UDP datagram, or of the payload of an Ethernet frame.
    pub size: u16,
    /// A frame that is not back so long after the start of its cycle is late or lost; none is a whole cycle.
    pub timeout: Option<Nanos>,
    /// Whether the kernel's timestamps are read, which splits the round trip into parts.
    pub stamps: bool,
    /// What a peer on this machine does wrong on purpose.
    pub faults: PeerFaults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameTransport {
    /// UDP datagrams.
    Udp,
    /// Ethernet frames through an `AF_PACKET` socket.
    Raw,
    /// Ethernet frames through an `AF_XDP` socket; the peer uses `AF_PACKET`.
    Xdp,
}

impl FrameTransport {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FrameTransport::Udp => "udp",
            FrameTransport::Raw => "raw",
            FrameTransport::Xdp => "xdp",
        }
    }
}

/// Where a frame goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameRoute {
    /// To 127.0.0.1 and back; UDP only.
    Loopback,
    /// Between two network namespaces with a virtual cable.
    Veth,
    /// To another machine that runs `rtscope network --serve`: its name or address for UDP, else the interface that it
    /// is reached by, and its MAC address if it isn't to be searched for.
    Peer { host: Option<String>, interface: Option<String> },
    /// Out of one interface of this machine and in at another.
    Cards { out: String, back: String },
}

/// What a peer does wrong on purpose, each with every n-th frame; 0 is never. With these the counts of a run are known
/// beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFaults {
    /// Doesn't send it back.
    pub drop: u32,
    /// Sends it back twice.
    pub duplicate: u32,
    /// Sends it back before the answer to the next frame.
    pub late: u32,
    /// Sends it back after the answer to the next frame.
    pub swap: u32,
}

impl PeerFaults {
    /// Each fault's name and period.
    #[must_use]
    pub const fn periods(&self) -> [(&'static str, u32); 4] {
        [
            ("drop", self.drop),
            ("duplicate", self.duplicate),
            ("late", self.late),
            ("swap", self.swap),
        ]
    }
}

/// The smallest size: magic number, version, kind, token and number of a frame.
pub const FRAME_SIZE_MIN: u16 = 24;

/// The largest size: the payload of a jumbo frame.
pub const FRAME_SIZE_MAX: u16 = 9_000;

/// The payload that fills the smallest Ethernet frame but for a few bytes, as field buses use it.
const FRAME_SIZE: u16 = 64;

/// The cycles that a network sampler may have.
pub const CYCLE_MIN: Nanos = Nanos::from_us(100);
pub const CYCLE_MAX: Nanos = Nanos::from_secs(1);

/// The options of a line.
const OPTIONS: [&str; 12] = [
    "over",
    "peer",
    "interface",
    "out",
    "in",
    "size",
    "timeout",
    "stamps",
    "drop",
    "duplicate",
    "late",
    "swap",
];

impl FramePath {
    /// What doesn't fit to the cycle.
    #[must_use]
    pub fn contradiction(&self, cycle: Nanos) -> Option<String> {
        if !(CYCLE_MIN..=CYCLE_MAX).contains(&cycle) {
            return Some(format!(
                "a network sampler needs a cycle of {} to {}, but the interval is {}: change the interval",
                CYCLE_MIN.exact(),
                CYCLE_MAX.exact(),
                cycle.exact()
            ));
        }
        let timeout = self.timeout.filter(|timeout| *timeout > cycle)?;
        Some(format!(
            "timeout={} is longer than the cycle of {}: each cycle sends its own frame, so write at most the length of the cycle",
            timeout.exact(),
            cycle.exact()
        ))
    }

    /// Whether the peer is a thread of this process.
    #[must_use]
    pub fn has_local_peer(&self) -> bool {
        matches!(self.route, FrameRoute::Loopback | FrameRoute::Veth)
    }
}

impl fmt::Display for NetworkSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkSampler::Off => f.write_str("off"),
            NetworkSampler::Frames(path) => path.fmt(f),
        }
    }
}

impl fmt::Display for FramePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.transport.word())?;
        match &self.route {
            FrameRoute::Loopback => f.write_str(" over=loopback")?,
            FrameRoute::Veth => f.write_str(" over=veth")?,
            FrameRoute::Peer { host, interface } => {
                f.write_str(" over=peer")?;
                host.iter().try_for_each(|host| write!(f, " peer={host}"))?;
                interface.iter().try_for_each(|name| write!(f, " interface={name}"))?;
            }
            FrameRoute::Cards { out, back } => write!(f, " over=cards out={out} in={back}")?,
        }
        write!(f, " size={}", self.size)?;
        self.timeout.iter().try_for_each(|timeout| write!(f, " timeout={}", timeout.exact()))?;
        if !self.stamps {
            f.write_str(" stamps=false")?;
        }
        let faults = self.faults.periods().into_iter().filter(|(_, period)| *period > 0);
        faults.into_iter().try_for_each(|(name, period)| write!(f, " {name}={period}"))
    }
}

impl FromStr for NetworkSampler {
    type Err = String;

    fn from_str(text: &str) -> Result<NetworkSampler, String> {
        match text.trim() {
            "off" => Ok(NetworkSampler::Off),
            line => line.parse().map(NetworkSampler::Frames),
        }
    }
}

crate::text::serde_as_text!(NetworkSampler);

/// The options of a line that were not taken yet.
struct Given<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Given<'a> {
    fn read(words: impl Iterator<Item = &'a str>) -> Result<Given<'a>, String> {
        let mut given = BTreeMap::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .filter(|(_, value)| !value.is_empty())
                .ok_or_else(|| format!("{word:?} in network: write options as key=value"))?;
            if !OPTIONS.contains(&key) {
                let problem = Problem::new(format!("network has no option {key:?}"));
                return Err(Problem { suggestion: suggest(key, OPTIONS), ..problem }.to_string());
            }
            if given.insert(key, value).is_some() {
                return Err(format!("option {key:?} of network is given twice"));
            }
        }
        Ok(Given(given))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        self.0.remove(key)
    }

    fn number(&mut self, key: &str, least: u32, most: u32) -> Result<Option<u32>, String> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number
            .map(Some)
            .ok_or_else(|| format!("{key}={text}: write a number from {least} to {most}"))
    }

    fn faults(&mut self) -> Result<PeerFaults, String> {
        let mut period = |key| self.number(key, 2, 1_000_000).map(Option::unwrap_or_default);
        Ok(PeerFaults {
            drop: period("drop")?,
            duplicate: period("duplicate")?,
            late: period("late")?,
            swap: period("swap")?,
        })
    }

    fn route(&mut self, transport: FrameTransport) -> Result<FrameRoute, String> {
        let by_transport = if transport == FrameTransport::Udp { "loopback" } else { "veth" };
        let over = self.take("over").unwrap_or(by_transport);
        let mut text = |key| self.take(key).map(str::to_owned);
        match (over, transport) {
            ("loopback", FrameTransport::Udp) => Ok(FrameRoute::Loopback),
            ("loopback", _) => Err(format!(
                "{} over=loopback: the loopback device carries no Ethernet; write over=veth, or udp",
                transport.word()
            )),
            ("veth", _) => Ok(FrameRoute::Veth),
            ("peer", FrameTransport::Udp) => match text("peer") {
                Some(host) => Ok(FrameRoute::Peer { host: Some(host), interface: None }),
                None => Err("udp over=peer: name the peer as peer=HOST or peer=HOST:PORT".to_owned()),
            },
            ("peer", _) => match text("interface") {
                Some(name) => Ok(FrameRoute::Peer { host: text("peer"), interface: Some(name) }),
                None => Err(format!(
                    "{} over=peer: name the interface that leads to the peer as interface=NAME",
                    transport.word()
                )),
            },
            ("cards", FrameTransport::Udp) => Err(
                "udp over=cards: the kernel delivers datagrams between two addresses of this machine without a \
                 card; write raw over=cards"
                    .to_owned(),
            ),
            ("cards", _) => match (text("out"), text("in")) {
                (Some(out), Some(back)) if out != back => Ok(FrameRoute::Cards { out, back }),
                _ => Err(format!(
                    "{} over=cards: name two interfaces as out=NAME in=NAME",
                    transport.word()
                )),
            },
            _ => Err(format!("over={over}: write loopback, veth, peer or cards")),
        }
    }
}

impl FromStr for FramePath {
    type Err = String;

    fn from_str(text: &str) -> Result<FramePath, String> {
        let mut words = text.split_whitespace();
        let transport = match words.next() {
            Some("udp") => FrameTransport::Udp,
            Some("raw") => FrameTransport::Raw,
            Some("xdp") => FrameTransport::Xdp,
            other => {
                let other = other.unwrap_or_default();
                return Err(format!(
                    "{other:?} is not a way to send frames: write off, udp, raw or xdp, for example 'raw over=veth'"
                ));
            }
        };
        let mut given = Given::read(words)?;
        let route = given.route(transport)?;
        let (least, most) = (u32::from(FRAME_SIZE_MIN), u32::from(FRAME_SIZE_MAX));
        let size = given.number("size", least, most)?.map_or(FRAME_SIZE, |size| size as u16);
        let timeout: Option<Nanos> = given
            .take("timeout")
            .map(str::parse)
            .transpose()
            .map_err(|e| format!("timeout: {e}"))?;
        if timeout.is_some_and(|timeout| timeout < Nanos::from_us(10)) {
            return Err(
                "timeout: no frame comes back in less than 10us; write a longer time".to_owned()
            );
        }
        let stamps = match given.take("stamps") {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => return Err(format!("stamps={other}: write true or false")),
        };
        let path = FramePath { transport, route, size, timeout, stamps, faults: given.faults()? };
        if let Some(key) = given.0.keys().next() {
            return Err(format!("{key} has no meaning in {text:?}: leave it out"));
        }
        if !path.has_local_peer() && path.faults != PeerFaults::default() {
            return Err(
                "drop, duplicate, late and swap are for a peer on this machine (over=loopback, over=veth); give \
                 them to `rtscope network --serve` instead"
                    .to_owned(),
            );
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_written() {
        for (typed, written) in [
            ("off", "off"),
            ("udp", "udp over=loopback size=64"),
            ("raw", "raw over=veth size=64"),
            ("udp  over=peer peer=board:99 size=24", "udp over=peer peer=board:99 size=24"),
            ("xdp over=peer interface=eth1", "xdp over=peer interface=eth1 size=64"),
            (
                "raw over=cards out=a in=b stamps=false",
                "raw over=cards out=a in=b size=64 stamps=false",
            ),
            (
                "udp drop=5 late=7 duplicate=9 swap=11 timeout=500us",
                "udp over=loopback size=64 timeout=500us drop=5 duplicate=9 late=7 swap=11",
            ),
        ] {
            let read: NetworkSampler = typed.parse().expect(typed);
            assert_eq!(read.to_string(), written);
            assert_eq!(written.parse(), Ok(read));
        }
    }

    #[test]
    fn a_wrong_line_is_told_with_what_to_write() {
        for (wrong, said) in [
            ("", "write off, udp, raw or xdp"),
            ("tcp", "\"tcp\" is not a way to send frames"),
            ("raw over=loopback", "carries no Ethernet"),
            ("udp over=peer", "peer=HOST"),
            ("raw over=peer peer=x", "interface=NAME"),
            ("udp over=cards out=a in=b", "without a card"),
            ("raw over=cards out=a in=a", "two interfaces"),
            ("udp over=moon", "loopback, veth, peer or cards"),
            ("udp size=23", "24 to 9000"),
            ("udp size=9001", "24 to 9000"),
            ("udp sizee=64", "did you mean \"size\""),
            ("udp size=64 size=64", "given twice"),
            ("udp size", "key=value"),
            ("udp timeout=5", "is not a duration"),
            ("udp timeout=1us", "less than 10us"),
            ("udp stamps=yes", "true or false"),
            ("udp drop=1", "2 to 1000000"),
            ("udp interface=eth0", "no meaning"),
            ("udp over=peer peer=x drop=5", "rtscope network --serve"),
        ] {
            let found = wrong.parse::<NetworkSampler>().expect_err(wrong);
            assert!(found.contains(said), "{wrong}: {found}");
        }
    }

    #[test]
    fn a_timeout_fits_into_a_cycle_that_is_in_range() {
        let path: FramePath = "udp timeout=500us".parse().expect("a line");
        assert_eq!(path.contradiction(Nanos::from_us(500)), None);
        let said = path.contradiction(Nanos::from_us(400)).expect("too long");
        assert!(said.contains("timeout=500us is longer than the cycle of 400us"), "{said}");
        for cycle in [Nanos::from_us(99), Nanos::from_ms(1_001)] {
            let said = path.contradiction(cycle).expect("out of range");
            assert!(said.contains("100us to 1s"), "{said}");
        }
    }
}
