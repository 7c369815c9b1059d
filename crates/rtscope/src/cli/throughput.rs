//! `rtscope throughput`: bytes as fast as they go, and what that does to a wake-up.

use std::{
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use rtscope_analyse::report::{published::of_table, throughput as report};
use rtscope_measure::{
    signals::Interrupt,
    throughput::{self, Over, ThroughputOptions},
};
use rtscope_model::{
    throughput::{FORMAT, ThroughputRecord, TransportProtocol},
    time::Nanos,
};
use rtscope_sys::tree::Tree;

use super::{
    Refused,
    place::{Place, Scheduling},
    print,
    published::{self, Choice},
    wall_clock,
};
use crate::{exit, output::note_lines, record};

/// The sampler's priority when none is asked for.
const PRIORITY: u8 = 80;

/// The published figures when none are asked for.
pub(super) const PUBLISHED: &str = "vendor-training";

/// The port of an iperf3 server when none is named.
const IPERF3_PORT: u16 = 5_201;

/// Measure network throughput, with and without a latency sampler
///
/// rtscope sends as fast as possible through a TCP connection, or numbered datagrams through UDP. It measures each
/// window (socket buffer size) twice: once alone, and once with a real-time thread that wakes every millisecond and
/// records how late it is. That thread runs on the last CPU, with fifo:80 where that is permitted.
///
/// Over loopback both sides are on this machine. Over veth they are two network namespaces with a virtual cable
/// (needs root). A peer runs rtscope throughput --serve, or iperf3 -s.
///
/// rtscope shows a vendor's published figures beside yours, unless you give
/// --published none.
///
/// Examples:
///   rtscope throughput
///   rtscope throughput --protocol both --over veth --duration 5s
///   rtscope throughput --serve
///   rtscope throughput --to board.local --windows 16,64,256 --json
///   rtscope throughput --iperf3 board.local
///   rtscope throughput --from rtscope-runs/throughput-20200101T000000
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    transfers: Transfers,
    /// Send to a peer that runs rtscope throughput --serve: HOST or HOST:PORT
    #[arg(long, value_name = "HOST", conflicts_with = "over")]
    to: Option<String>,
    /// Send to a peer that runs iperf3 -s: HOST or HOST:PORT; TCP only
    #[arg(long, value_name = "HOST", conflicts_with_all = ["to", "over"])]
    iperf3: Option<String>,
    /// Serve senders until Ctrl-C; anyone who can reach the address may use it [default: port 15201 of every address]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:15201", conflicts_with_all = ["to", "iperf3", "from", "json", "out"])]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    published: Choice,
    /// Judge a recorded folder again and write its page
    #[arg(long, value_name = "DIR")]
    pub(super) from: Option<PathBuf>,
    /// Folder for the record and the page [default: rtscope-runs/throughput-TIME]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What is sent on one machine.
#[derive(Debug, clap::Args)]
pub(super) struct Transfers {
    /// Protocol: tcp, udp, or both
    #[arg(long, value_name = "PROTOCOL", default_value = "tcp", value_parser = ["tcp", "udp", "both"])]
    protocol: String,
    /// Windows in KiB, separated by commas
    #[arg(long, value_name = "KIB", default_value = "16,32,64,128,256", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65_536))]
    windows: Vec<u64>,
    /// Duration of each transfer, up to 5min
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    duration: Nanos,
    /// Network to use: loopback, or veth for two namespaces with a virtual cable
    #[arg(long, value_name = "WHERE", default_value = "loopback", value_parser = ["loopback", "veth"])]
    over: String,
    /// Measure without the sampler
    #[arg(long)]
    no_sampler: bool,
    #[command(flatten)]
    place: Place,
}

impl Transfers {
    /// Refuses what makes no sense on any machine.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if !(Nanos::from_ms(50)..=Nanos::from_secs(300)).contains(&self.duration) {
            return Err(Refused(format!(
                "--duration {}: must be from 50ms to 5min",
                self.duration
            ))
            .into());
        }
        self.place.scheduling(PRIORITY)?;
        Ok(())
    }

    pub(super) fn is_over_veth(&self) -> bool {
        self.over == "veth"
    }

    /// How long all transfers take.
    pub(super) fn length(&self) -> Nanos {
        let transfers = self.protocols().len() * self.windows.len();
        let each = if self.no_sampler { 1 } else { 2 };
        Nanos(self.duration.0.saturating_mul((transfers * each) as u64))
    }

    fn protocols(&self) -> Vec<TransportProtocol> {
        match self.protocol.as_str() {
            "udp" => vec![TransportProtocol::Udp],
            "both" => vec![TransportProtocol::Tcp, TransportProtocol::Udp],
            _ => vec![TransportProtocol::Tcp],
        }
    }
}

/// The record's file in its folder.
const RECORD: &str = "throughput.json";

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(address) = args.serve {
        return serve(address);
    }
    // A mistake in a table is told before anything is measured.
    args.published.entries(PUBLISHED)?;
    if let Some(folder) = &args.from {
        let record = read(folder)?;
        print_result(&record, folder, args)?;
        return Ok(ExitCode::from(exit::PASS));
    }
    let transfers = &args.transfers;
    transfers.check()?;
    let wall_clock = wall_clock();
    let folder = record::new_folder(args.out.as_deref(), "throughput", &wall_clock, RECORD)?;
    let scheduling = transfers.place.scheduling(PRIORITY)?.unwrap_or(Scheduling::fifo(PRIORITY));
    let options = ThroughputOptions {
        over: over(args)?,
        protocols: transfers.protocols(),
        windows: transfers.windows.iter().map(|kib| kib << 10).collect(),
        duration: transfers.duration,
        sampler: match transfers.no_sampler {
            true => None,
            false => Some(scheduling.on(transfers.place.cpu.or_last()?)),
        },
        tree: Tree::default(),
        interrupt: Interrupt::install()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wall_clock,
    };
    let record = measured(options)?;
    record::write_in(&folder, RECORD, &(serde_json::to_string(&record)? + "\n"))?;
    print_result(&record, &folder, args)?;
    Ok(ExitCode::from(code(&record)))
}

pub(super) fn read(folder: &Path) -> anyhow::Result<ThroughputRecord> {
    record::read_document_in(folder, RECORD, FORMAT)
}

/// The exit code of a record.
pub(super) fn code(record: &ThroughputRecord) -> u8 {
    let differs = |one: &rtscope_model::throughput::Transfer| {
        one.protocol == TransportProtocol::Tcp && one.sent_bytes != one.received.bytes
    };
    let sound = !record.interrupted && !record.transfers.iter().any(differs);
    if sound { exit::PASS } else { exit::INCONCLUSIVE }
}

fn over(args: &Args) -> anyhow::Result<Over> {
    if let Some(host) = &args.iperf3 {
        if args.transfers.protocol != "tcp" {
            return Err(Refused("--iperf3 takes TCP only: leave --protocol out".to_owned()).into());
        }
        return Ok(Over::Iperf3(host.clone(), address_of("--iperf3", host, IPERF3_PORT)?));
    }
    match &args.to {
        Some(host) => Ok(Over::Peer(host.clone(), address_of("--to", host, throughput::PORT)?)),
        None if args.transfers.is_over_veth() => Ok(Over::Veth),
        None => Ok(Over::Loopback),
    }
}

/// The address of a peer that an option names.
fn address_of(option: &str, host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    // With a port, or a name or an address without one.
    let found = match host.to_socket_addrs() {
        Ok(all) => Ok(all),
        Err(_) => (host, port).to_socket_addrs(),
    };
    let advice = || {
        format!(
            "{option} {host}: no such host; write a name or an address, with :PORT if it is not {port}"
        )
    };
    // A server listens on IPv4 unless it is told otherwise.
    found.with_context(advice)?.min_by_key(SocketAddr::is_ipv6).with_context(advice)
}

fn serve(address: SocketAddr) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("can't listen on {address}: name another address and port after --serve")
    })?;
    print(&format!("Listening on {}. Press Ctrl-C to stop.\n", listener.local_addr()?))?;
    let interrupt = Interrupt::install()?;
    throughput::serve(&listener, &Tree::default(), &interrupt, |line| note!("{line}"))?;
    Ok(ExitCode::from(exit::PASS))
}

/// Measures; falls back to an ordinary sampler where a real-time one is not permitted.
fn measured(mut options: ThroughputOptions) -> anyhow::Result<ThroughputRecord> {
    match throughput::run(&options) {
        Err(error) if error.is_permission() => {
            let ways = super::ways_to_permission();
            note_lines(&format!("rtscope: {error}. Sampled by an ordinary thread. {ways}"));
            options.sampler = options.sampler.map(|place| Scheduling::OTHER.on(place.cpus));
            Ok(throughput::run(&options)?)
        }
        other => Ok(other?),
    }
}

/// Writes the page and prints the figures.
fn print_result(record: &ThroughputRecord, folder: &Path, args: &Args) -> anyhow::Result<()> {
    let published = args.published.entries(PUBLISHED)?;
    let published = of_table(&published, &report::ours(record, published::whose(&record.kernel)));
    let page = report::page(record, &published);
    match args.json {
        true => super::tell_json(folder, &page, &report::document(record, &published)),
        false => super::tell_text(folder, &page, &report::table(record, &published)),
    }
}
