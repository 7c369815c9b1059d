use std::time::Duration;

use rtscope_model::plan::FramePath;
use rtscope_sys::frame::Stamps;

use super::*;
use crate::frames::{Came, Wire};

fn path(line: &str) -> FramePath {
    line.parse().expect(line)
}

fn links(line: &str) -> Result<Links, NetworkError> {
    Links::open(&path(line), 1, None)
}

/// A frame that is not lost comes within that time on a busy machine too.
const PATIENCE_NS: u64 = 3_000_000_000;

/// Sends frames 0 to `count` and takes what comes of each within a while.
fn exchange(wire: &mut SocketWire, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for number in 0..count {
        assert!(wire.send(number), "frame {number} is sent");
        for _ in 0..50 {
            match wire.receive(PATIENCE_NS) {
                Came::Frame(came, _) => {
                    numbers.push(came);
                    if came == number {
                        break;
                    }
                }
                // Stamps of what was sent end a wait, too.
                Came::Interrupted | Came::Stray => {}
                Came::Nothing => break,
            }
        }
    }
    numbers
}

#[test]
fn frames_come_back_over_loopback_with_stamps() {
    let mut links = links("udp").expect("opens");
    let wire = &mut links.wires[0];
    assert_eq!(exchange(wire, 20), (0..20).collect::<Vec<_>>());
    assert!(wire.sent().kernel_ns.is_some(), "the kernel stamps what it sends");
    let mut without = self::links("udp stamps=false").expect("opens");
    assert_eq!(exchange(&mut without.wires[0], 3), [0, 1, 2]);
    assert_eq!(
        (without.wires[0].sent(), without.wires[0].stamp_clock_ns()),
        (Stamps::default(), None)
    );
}

#[test]
fn a_peer_of_this_machine_drops_what_it_is_asked_to() {
    let mut links = links("udp drop=3").expect("opens");
    assert_eq!(exchange(&mut links.wires[0], 7), [0, 1, 3, 4, 6]);
}

#[test]
fn frames_of_each_kind_cross_a_cable_between_two_namespaces() {
    if !rtscope_sys::process::is_root() {
        return rtscope_testing::skip::skip_this("needs root");
    }
    let own = || std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
    let before = own();
    for line in ["udp over=veth", "raw over=veth size=46", "xdp over=veth"] {
        let mut links = links(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(exchange(&mut links.wires[0], 100), (0..100).collect::<Vec<_>>(), "{line}");
    }
    assert_eq!(own(), before);
    let error = self::links("raw over=veth size=1501").expect_err("too large");
    assert!(error.to_string().contains("near0 takes at most 1500"), "{error}");
    let error = Links::open(&path("xdp over=veth"), 2, None).expect_err("two threads");
    assert!(error.to_string().contains("xdp allows only one thread"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let said = |line: &str| links(line).expect_err(line).to_string();
    for (line, words) in [
        ("raw over=peer interface=nosuch0", "there is no network interface \"nosuch0\""),
        ("raw over=cards out=nosuch0 in=nosuch1", "nosuch0"),
        ("raw over=peer interface=lo", "lo carries no Ethernet frames"),
        ("udp over=peer peer=no.such.host.invalid", "there is no host"),
        ("udp over=peer peer=127.0.0.1:x", "there is no host"),
    ] {
        assert!(said(line).contains(words), "{line}: {}", said(line));
    }
    assert!(mac_of("02:00:00:00:00:0g").is_err() && mac_of("02:00:00:00:00").is_err());
    assert_eq!(mac_of("02:00:00:00:00:0f").expect("a MAC"), [2, 0, 0, 0, 0, 15]);
}

#[test]
fn a_silent_peer_and_one_of_another_version_are_told_apart() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("plain");
    let line = format!("udp over=peer peer={}", socket.local_addr().expect("bound"));
    // Nobody answers at first; then somebody of a later version.
    let answering = std::thread::spawn(move || {
        let mut buffer = [0; 100];
        for nth in 0..HELLOS + 1 {
            let (len, from) = socket.recv_from(&mut buffer).expect("a frame");
            let hello = Message::read(&buffer[..len]).expect("a message");
            assert_eq!((hello.kind, hello.version), (Kind::Hello, VERSION));
            if nth == HELLOS {
                let answer = Message { version: VERSION + 1, kind: Kind::Refused, ..hello };
                answer.write(&mut buffer);
                socket.send_to(&buffer[..len], from).expect("sent");
            }
        }
    });
    let silent = links(&line).expect_err("silent").to_string();
    assert!(silent.contains("no peer answers") && silent.contains("--serve"), "{silent}");
    let other = links(&line).expect_err("another version").to_string();
    assert!(other.contains(&format!("uses version {}", VERSION + 1)), "{other}");
    answering.join().expect("no panic");
}

/// A name with addresses of both families led to the one at which `rtscope network --serve` doesn't listen.
#[test]
fn a_host_with_both_families_is_reached_by_ipv4() {
    let all = |texts: &[&str]| -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    };
    let (first, second) = ("192.0.2.1:15202", "192.0.2.2:15202");
    let both = all(&["[2001:db8::1]:15202", first, second]);
    assert_eq!(preferred(both.into_iter()), Some(all(&[first])[0]));
    let six = all(&["[2001:db8::1]:15202"]);
    assert_eq!(preferred(six.clone().into_iter()), Some(six[0]));
    assert_eq!(preferred(std::iter::empty()), None);
}

/// Sizes from 1,453 to 1,472 were sent in fragments by IPv6.
#[test]
fn a_datagram_by_ipv6_has_a_longer_header() {
    let headers = |text: &str| udp_headers(&text.parse().expect("an address"));
    let largest = |text: &str| 1_500 - headers(text);
    assert_eq!((largest("192.0.2.1:1"), largest("[2001:db8::1]:1")), (1_472, 1_452));
}
