//! `rtscope network`: the round trip of a real-time thread's frames, as a run.

use std::{
    net::{SocketAddr, UdpSocket},
    process::ExitCode,
};

use anyhow::Context;
use rtscope_measure::signals::Interrupt;
use rtscope_model::plan::{FrameTransport, PeerFaults};
use rtscope_sampler::network;

use super::{Refused, print, run};
use crate::{exit, plans};

/// Measure the round trip of small frames in a fixed cycle
///
/// In each cycle a real-time thread sends one frame and waits until the frame comes back. A frame that isn't back at
/// the timeout counts as missed: late if it still comes back, otherwise lost. The latency runs from the start of the
/// cycle until the thread has the frame back. The report also splits this time into parts, by the kernel's timestamps.
///
/// The command works like `rtscope run`: phases, loads, requirements, the page, exports and options are the same.
/// Without a plan rtscope runs `network`: at rest, under a message load, and under a network load.
///
/// With --over, the peer is a thread of this process. With --to or --interface, the peer is another machine that runs
/// `rtscope network --serve`. With --cards, a frame leaves through one interface and arrives at another, without a
/// peer.
///
/// Examples:
///   rtscope network
///   rtscope network --transport raw --cycle 250us --require 'missed = 0'
///   rtscope network --serve
///   rtscope network --to board.local --cycle 1ms
///   rtscope network --serve --transport raw --interface eth1
///   rtscope network --transport raw --interface eth1
///   rtscope network --transport raw --cards eth1,eth2
///   rtscope network fieldbus
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[group(id = "network_verb")]
pub(super) struct Args {
    #[command(flatten)]
    path: Path,
    /// Send frames back until Ctrl-C: UDP at ADDRESS:PORT [default: port 15202 of every address], or Ethernet frames
    /// with --interface. Anyone who can reach the server can use it
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:15202", conflicts_with_all = ["over", "to", "cards", "size", "timeout"])]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    run: run::Args,
}

/// What frames are sent, and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Frames")]
#[group(id = "frame_path")]
struct Path {
    /// Kind of frames: udp, raw (Ethernet through AF_PACKET), or xdp (Ethernet through AF_XDP)
    #[arg(long, value_name = "KIND", value_parser = ["udp", "raw", "xdp"])]
    transport: Option<String>,
    /// Network on this machine: loopback (udp only), or veth for two namespaces with a virtual cable
    #[arg(long, value_name = "WHERE", value_parser = ["loopback", "veth"], conflicts_with_all = ["to", "interface", "cards"])]
    over: Option<String>,
    /// Peer that runs rtscope network --serve: HOST or HOST:PORT for udp, a MAC address for the others
    #[arg(long, value_name = "PEER", conflicts_with = "cards")]
    to: Option<String>,
    /// Interface that leads to the peer, for raw and xdp
    #[arg(long, value_name = "NAME", conflicts_with = "cards")]
    interface: Option<String>,
    /// Two interfaces of this machine: the first sends and the second receives, for raw and xdp
    #[arg(long, value_name = "OUT,IN")]
    cards: Option<String>,
    /// Bytes of a UDP datagram, or of the payload of an Ethernet frame [default: 64]
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// Time from the start of a cycle after which its frame is late or lost [default: the cycle]
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Measure without the kernel's timestamps
    #[arg(long, conflicts_with = "serve")]
    no_stamps: bool,
    /// Let the peer drop, send twice, delay or swap every N-th frame, to test the software that monitors the network:
    /// drop=N, duplicate=N, late=N, swap=N; repeatable
    #[arg(long, value_name = "FAULT=N", conflicts_with_all = ["to", "cards"])]
    fault: Vec<String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(address) = args.serve {
        return serve(address, &args.path);
    }
    let line = args.path.line()?;
    let plan = args.run.shaped(plans::DEFAULT_NETWORK, line.as_deref())?;
    if plan.phases.iter().all(|phase| phase.sampler.network.path().is_none()) {
        let text = format!(
            "the plan {:?} sends no frames: add --transport udp, raw or xdp, or `network = \"udp\"` to its [sampler]",
            plan.name
        );
        return Err(Refused(text).into());
    }
    run::measured(&args.run, plan)
}

impl Path {
    /// The line of a plan that says the same; none when no option was given.
    fn line(&self) -> anyhow::Result<Option<String>> {
        let is_given = self.transport.is_some()
            || self.over.is_some()
            || self.to.is_some()
            || self.interface.is_some()
            || self.cards.is_some()
            || self.size.is_some()
            || self.timeout.is_some()
            || self.no_stamps
            || !self.fault.is_empty();
        if !is_given {
            return Ok(None);
        }
        let ethernet = self.interface.is_some() || self.cards.is_some();
        let by_route = if ethernet { "raw" } else { "udp" };
        let mut words = vec![self.transport.as_deref().unwrap_or(by_route).to_owned()];
        let mut add = |key: &str, value: Option<&str>| {
            words.extend(value.map(|value| format!("{key}={value}")));
        };
        add("over", self.over.as_deref());
        if self.to.is_some() || self.interface.is_some() {
            add("over", Some("peer"));
        }
        add("peer", self.to.as_deref());
        add("interface", self.interface.as_deref());
        if let Some(cards) = &self.cards {
            let (out, back) = cards.split_once(',').ok_or_else(|| {
                Refused(format!("--cards {cards}: name two interfaces, for example eth1,eth2"))
            })?;
            add("over", Some("cards"));
            add("out", Some(out));
            add("in", Some(back));
        }
        add("size", self.size.as_deref());
        add("timeout", self.timeout.as_deref());
        add("stamps", self.no_stamps.then_some("false"));
        words.extend(self.fault.iter().cloned());
        Ok(Some(words.join(" ")))
    }

    /// What a server does wrong on purpose.
    fn faults(&self) -> anyhow::Result<PeerFaults> {
        let line = format!("udp {}", self.fault.join(" "));
        let path: rtscope_model::plan::FramePath =
            line.parse().map_err(|why| Refused(format!("--fault: {why}")))?;
        Ok(path.faults)
    }

    fn is_ethernet(&self) -> bool {
        let words = [FrameTransport::Raw.word(), FrameTransport::Xdp.word()];
        self.transport.as_deref().is_some_and(|word| words.contains(&word))
    }
}

fn serve(address: SocketAddr, path: &Path) -> anyhow::Result<ExitCode> {
    let faults = path.faults()?;
    match (&path.interface, path.is_ethernet()) {
        (Some(interface), _) => {
            let interrupt = Interrupt::install()?;
            print(&format!(
                "Listening on {interface} for Ethernet frames. Press Ctrl-C to stop.\n"
            ))?;
            network::serve_ethernet(interface, faults, || interrupt.is_stopped())?;
        }
        (None, true) => {
            let text = "--serve: name the interface that receives Ethernet frames, for example --interface eth1";
            return Err(Refused(text.to_owned()).into());
        }
        (None, false) => {
            let socket = UdpSocket::bind(address).with_context(|| {
                format!("can't listen on {address}: name another address and port after --serve")
            })?;
            let interrupt = Interrupt::install()?;
            print(&format!("Listening on {}. Press Ctrl-C to stop.\n", socket.local_addr()?))?;
            network::serve_udp(&socket, faults, || interrupt.is_stopped())?;
        }
    }
    Ok(ExitCode::from(exit::PASS))
}
