//! Policy, priority, nice value and CPUs of a thread: set, and read back as the kernel has them.

use rtscope_model::{
    cpu::CpuSet,
    schedule::{Budget, Placement, Policy},
};

use crate::{
    error::{Error, check},
    shield,
};

/// The calling thread, where a thread number is asked.
pub const SELF: i32 = 0;

/// Room for as many CPUs as a CPU set can name.
const MASK_BYTES: usize = 16_384 / 8;

const fn number(policy: Policy) -> u32 {
    match policy {
        Policy::Other => libc::SCHED_OTHER as u32,
        Policy::Batch => libc::SCHED_BATCH as u32,
        Policy::Idle => libc::SCHED_IDLE as u32,
        Policy::Fifo => libc::SCHED_FIFO as u32,
        Policy::Rr => libc::SCHED_RR as u32,
        Policy::Deadline => libc::SCHED_DEADLINE as u32,
    }
}

/// The policy with a kernel number; policies that rtscope has no word for (`SCHED_EXT`) count as
/// the fair class they behave like.
#[must_use]
pub fn policy_of(number_asked: u32) -> Policy {
    let known = Policy::ALL.into_iter().find(|policy| number(*policy) == number_asked);
    known.unwrap_or(Policy::Other)
}

/// Sets policy, priority, nice value and budget of a thread.
///
/// # Errors
///
/// What the kernel answers: EPERM without permission, EINVAL for a bad priority, EBUSY when a
/// deadline budget does not fit.
pub fn set_policy(tid: i32, placement: &Placement) -> Result<(), Error> {
    let budget = placement.budget.unwrap_or(Budget { runtime_ns: 0, deadline_ns: 0, period_ns: 0 });
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: number(placement.policy),
        sched_flags: 0,
        sched_nice: i32::from(placement.nice),
        sched_priority: if placement.policy.has_priority() {
            u32::from(placement.priority)
        } else {
            0
        },
        sched_runtime: budget.runtime_ns,
        sched_deadline: budget.deadline_ns,
        sched_period: budget.period_ns,
    };
    // SAFETY: the pointer is valid for one sched_attr whose size field is right.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0u32) };
    check(answer, || format!("sched_setattr {} {}", placement.policy, placement.priority)).map(drop)
}

/// Sets the CPUs of a thread. The calling thread enters a shield where that is the only way to them.
///
/// # Errors
///
/// EINVAL when none of them is online and allowed.
pub fn set_affinity(tid: i32, cpus: &CpuSet) -> Result<(), Error> {
    let answer = try_affinity(tid, cpus);
    let is_outside = |error: &Error| error.errno() == Some(libc::EINVAL);
    if tid == SELF && answer.as_ref().is_err_and(is_outside) && shield::enter(cpus) {
        return try_affinity(tid, cpus);
    }
    answer
}

fn try_affinity(tid: i32, cpus: &CpuSet) -> Result<(), Error> {
    let mut mask = [0u8; MASK_BYTES];
    for cpu in cpus.iter() {
        if let Some(byte) = mask.get_mut(cpu as usize / 8) {
            *byte |= 1 << (cpu % 8);
        }
    }
    let mask = native_words(&mask);
    // SAFETY: the mask is valid for the length that is passed; the kernel reads it only.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(&mask), mask.as_ptr())
    };
    check(answer, || format!("sched_setaffinity {cpus}")).map(drop)
}

/// The CPUs a thread may use.
///
/// # Errors
///
/// ESRCH when there is no such thread.
pub fn affinity(tid: i32) -> Result<CpuSet, Error> {
    let mut words = [0usize; MASK_BYTES / size_of::<usize>()];
    // SAFETY: the buffer is valid for the length that is passed.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&words), words.as_mut_ptr())
    };
    let bytes = check(answer, || "sched_getaffinity".to_owned())? as usize;
    let bits = usize::BITS as usize;
    let set = |cpu: &u32| words[*cpu as usize / bits] >> (*cpu as usize % bits) & 1 == 1;
    Ok((0..(bytes * 8) as u32).filter(set).collect())
}

/// The kernel's mask is an array of machine words: on a big-endian machine the bytes of a word are
/// the other way round.
fn native_words(mask: &[u8; MASK_BYTES]) -> [usize; MASK_BYTES / size_of::<usize>()] {
    let mut words = [0; MASK_BYTES / size_of::<usize>()];
    for (word, bytes) in words.iter_mut().zip(mask.chunks_exact(size_of::<usize>())) {
        *word = usize::from_le_bytes(bytes.try_into().expect("chunks are whole"));
    }
    words
}

fn attributes(tid: i32) -> Result<libc::sched_attr, Error> {
    // SAFETY: sched_attr is plain integers; all zeroes is a value of it.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the pointer is valid for `size` bytes, which the kernel fills.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0u32) };
    check(answer, || "sched_getattr".to_owned())?;
    Ok(attr)
}

/// Places the calling thread and reads back what became of it.
pub fn place(asked: &Placement) -> Result<Placement, Error> {
    set_affinity(SELF, &asked.cpus)?;
    set_policy(SELF, asked)?;
    placement(SELF)
}

/// Places the calling thread where nothing else is good enough.
///
/// # Errors
///
/// As [`place`], and when another place is read back.
pub fn place_exactly(asked: &Placement) -> Result<(), Error> {
    let found = place(asked)?;
    if found == *asked {
        return Ok(());
    }
    Err(Error::Placement { asked: Box::new(asked.clone()), found: Box::new(found) })
}

/// Where and how a thread runs, as the kernel has it.
///
/// # Errors
///
/// ESRCH when there is no such thread.
pub fn placement(tid: i32) -> Result<Placement, Error> {
    let attr = attributes(tid)?;
    let policy = policy_of(attr.sched_policy);
    Ok(Placement {
        policy,
        priority: attr.sched_priority as u8,
        // The kernel keeps a nice value for real-time threads too; it has no meaning there.
        nice: if policy.is_real_time() { 0 } else { attr.sched_nice as i8 },
        budget: (policy == Policy::Deadline).then_some(Budget {
            runtime_ns: attr.sched_runtime,
            deadline_ns: attr.sched_deadline,
            period_ns: attr.sched_period,
        }),
        cpus: affinity(tid)?,
    })
}

/// The nice value of a thread, which a real-time one has too: for when it is an ordinary one again.
///
/// # Errors
///
/// ESRCH when there is no such thread.
pub fn nice(tid: i32) -> Result<i8, Error> {
    let thread = rustix::process::Pid::from_raw(tid);
    let found = rustix::process::getpriority_process(thread);
    found
        .map(|nice| nice as i8)
        .map_err(|e| Error::Call { call: format!("getpriority {tid}"), source: e.into() })
}

/// Sets the slice of a thread of the fair class: how long it runs before the scheduler looks for another
/// (Linux 6.12; earlier ones take it and do nothing).
pub fn set_slice(tid: i32, placement: &Placement, slice_ns: u64) -> Result<(), Error> {
    let budget = Budget { runtime_ns: slice_ns, deadline_ns: 0, period_ns: 0 };
    set_policy(tid, &Placement { budget: Some(budget), ..placement.clone() })
}

/// The slice of a thread of the fair class as the kernel has it; none where it has no such.
#[must_use]
pub fn slice_ns(tid: i32) -> Option<u64> {
    let attr = attributes(tid).ok()?;
    let is_fair = !policy_of(attr.sched_policy).is_real_time();
    (is_fair && attr.sched_runtime > 0).then_some(attr.sched_runtime)
}

/// The CPU that the caller runs on.
#[must_use]
#[inline]
pub fn current_cpu() -> u32 {
    // SAFETY: no argument, no memory.
    unsafe { libc::sched_getcpu() }.max(0) as u32
}

/// Whether this process may have a FIFO thread: tried on a thread that ends at once.
#[must_use]
pub fn may_be_real_time() -> bool {
    let attempt = || {
        let cpus = affinity(SELF).unwrap_or_default();
        let fifo = Placement { policy: Policy::Fifo, priority: 1, nice: 0, budget: None, cpus };
        set_policy(SELF, &fifo).is_ok()
    };
    // The C library keeps the stack of a thread that has ended, and locking all memory makes all of it real.
    let thread = std::thread::Builder::new().stack_size(64 * 1024);
    std::thread::scope(|scope| {
        thread.spawn_scoped(scope, attempt).is_ok_and(|it| it.join().unwrap_or(false))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_placed_and_read_back() {
        std::thread::spawn(|| {
            let allowed = affinity(SELF).expect("own affinity");
            let one: CpuSet = allowed.iter().take(1).collect();
            set_affinity(SELF, &one).expect("a CPU of ours");
            let asked =
                Placement { policy: Policy::Batch, priority: 0, nice: 5, budget: None, cpus: one };
            set_policy(SELF, &asked).expect("batch needs no permission");
            assert_eq!(placement(SELF).expect("own placement"), asked);
            assert!(asked.cpus.contains(current_cpu()));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        let nowhere: CpuSet = [16_000].into_iter().collect();
        let error =
            std::thread::spawn(move || set_affinity(SELF, &nowhere)).join().expect("no panic");
        assert_eq!(error.expect_err("refused").errno(), Some(libc::EINVAL));
    }
}
