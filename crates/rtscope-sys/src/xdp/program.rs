//! The small program that hands our frames to an `AF_XDP` socket and everything else to the kernel, and its attachment.
//!
//! The attachment is a link, which the kernel removes with its descriptor, also after a SIGKILL.

use std::{
    mem::size_of_val,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use crate::{
    error::{Error, check},
    frame::{ETHER_TYPE, ETHERNET_HEADER},
};

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// Destination in the lower half, source in the upper one.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn step(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: to | (from << 4), offset, value }
}

/// Opcodes (`linux/bpf.h`), as they are used here.
const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_CONSTANT_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const JUMP_IF_GREATER: u8 = 0x2d;
const JUMP_IF_NOT: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The value of a constant is a map, by its descriptor.
const OF_MAP: u8 = 1;

const REDIRECT_MAP: i32 = 51;
const XDP_PASS: i32 = 2;

/// `struct xdp_md`: places of its fields.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

/// Commands of bpf(2).
const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// In the kernel's generic code, which every device has and which leaves the card as it is.
const GENERIC: u32 = 1 << 1;

/// A call of bpf(2). Unused fields of a larger structure are 0 to the kernel.
fn bpf<T>(command: i32, attributes: &T, what: &str) -> Result<i64, Error> {
    // SAFETY: the structure lives through the call, with the length that is passed.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of_val(attributes) as libc::c_uint,
        )
    };
    check(answer, || what.to_owned())
}

fn descriptor(number: i64) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor, and it is ours.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}

#[repr(C)]
struct NewMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

#[repr(C, align(8))]
struct Entry {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C, align(8))]
struct NewProgram {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
}

#[repr(C)]
struct NewLink {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

fn new_map() -> Result<OwnedFd, Error> {
    let map = NewMap { kind: MAP_OF_SOCKETS, key_bytes: 4, value_bytes: 4, entries: 1 };
    bpf(MAP_CREATE, &map, "make a map of AF_XDP sockets").map(descriptor)
}

/// Frames of our type on queue 0 go to the socket in the map, the rest goes on.
fn instructions(map: &OwnedFd) -> [Instruction; 16] {
    let pass = 14;
    let to_pass = |from: i16| pass - from - 1;
    [
        step(LOAD_32, 2, 1, DATA, 0),
        step(LOAD_32, 3, 1, DATA_END, 0),
        step(LOAD_32, 6, 1, QUEUE, 0),
        step(MOVE, 4, 2, 0, 0),
        step(ADD_CONSTANT, 4, 0, 0, ETHERNET_HEADER as i32),
        step(JUMP_IF_GREATER, 4, 3, to_pass(5), 0),
        step(LOAD_16, 5, 2, 12, 0),
        step(JUMP_IF_NOT, 5, 0, to_pass(7), i32::from(ETHER_TYPE.to_be())),
        step(LOAD_CONSTANT_64, 1, OF_MAP, 0, map.as_raw_fd()),
        step(0, 0, 0, 0, 0),
        step(MOVE, 2, 6, 0, 0),
        step(MOVE_CONSTANT, 3, 0, 0, XDP_PASS),
        step(CALL, 0, 0, 0, REDIRECT_MAP),
        step(EXIT, 0, 0, 0, 0),
        step(MOVE_CONSTANT, 0, 0, 0, XDP_PASS),
        step(EXIT, 0, 0, 0, 0),
    ]
}

fn new_program(map: &OwnedFd) -> Result<OwnedFd, Error> {
    let instructions = instructions(map);
    let program = NewProgram {
        kind: PROGRAM_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    bpf(PROGRAM_LOAD, &program, "load an XDP program").map(descriptor)
}

/// A program that hands frames to a socket, for as long as the value lives.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Attached {
    /// Hands frames of our type from queue 0 of an interface to a socket that is bound to it.
    pub(super) fn new(interface: u32, socket: BorrowedFd<'_>) -> Result<Attached, Error> {
        let map = new_map()?;
        let (key, value) = (0u32, socket.as_raw_fd().cast_unsigned());
        let entry = Entry {
            map: map.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE, &entry, "put an AF_XDP socket into its map")?;
        let program = new_program(&map)?;
        let link = NewLink {
            program: program.as_raw_fd().cast_unsigned(),
            interface,
            attach: ATTACH_XDP,
            flags: GENERIC,
        };
        let link = bpf(LINK_CREATE, &link, "attach an XDP program").map(descriptor)?;
        Ok(Attached { _link: link, _program: program, _map: map })
    }
}
