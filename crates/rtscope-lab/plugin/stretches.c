/*
 * Plugin of the emulator: writes the stretches of a guest's run in which a thread that becomes due would have to wait.
 *
 * A stretch lasts from one point at which the kernel could switch to a thread until the next one. These are points: an
 * instruction in user space, the wait for an interrupt, and the beginning of the functions of `points=`. In a kernel
 * that preempts itself (`preempts=1`), so is every block of the kernel's code that begins with interrupts on and a
 * preempt count of 0. What is known of both comes from the instructions themselves: those that switch interrupts, the
 * code in which exceptions enter and leave (`entry=`), and those that add to the preempt count.
 *
 * It can be wrong, because it sees no register. So a stretch is a place to look at: what counts is the latency that is
 * measured there.
 *
 * It is for x86-64. It changes nothing that the guest can see. It follows common.h.
 *
 * Arguments: out=FILE, shift=N (an instruction takes 2^N ns), above=NS (shorter stretches are left out), preempts=0|1,
 * points=A+B+..., entry=FROM+TO, code=FROM+TO, lock=A: addresses in decimal; probe=1 (end the emulator as soon as it has
 * loaded the plugin, with an empty file). A function that takes a spin lock begins at `lock`: where the kernel preempts
 * itself, the first number in it that is added to is the preempt count. `code` is the kernel's own code.
 *
 * The file is a sequence of entries, all numbers little-endian and of 8 bytes:
 *   'M' latency expiry read idle   a mark of the sampler; where it had read the clock
 *   'S' from length idle first last   a stretch, with the addresses of its first and its last block
 *   'L'    something was lost: memory was full
 *   'E'    the end; without it, the disk was full, or the file too long
 * `read` and `from` are numbers of instructions that had been executed, `length` is one. `idle` is the time that had
 * passed without an instruction, in ns.
 */

/*
 * The emulator's clock in virtual time. It refuses to be read in the middle of a block, because then its count of
 * instructions is that of the block's beginning. Here only its idle time is needed, which has not changed since.
 */
extern s64 icount_get(void) __attribute__((weak));
extern s64 icount_get_raw(void) __attribute__((weak));
extern s64 icount_to_ns(s64) __attribute__((weak));
extern __thread void *current_cpu;

enum { BLOCKS = 1 << 23, POINTS = 16, LOCK_BYTES = 64 };

/* What a block is. */
enum { IS_USER = 1, IS_POINT = 2, IS_ENTRY = 4 };

struct block {
	u64 address;
	/* Where the emulator has the guest's memory of the block, or 0. */
	u64 host;
	u64 kind;
};

static struct block *blocks;
static u64 blocks_used;

static u64 shift = 2, above;
static u64 preempts, entry_from, entry_to, code_from, code_to, lock_at, count_at;
static u64 points[POINTS];
static u32 points_used;

/* The distance of `host` from `address` in the kernel's code, which is one piece in the emulator's memory; or 0. */
static u64 code_distance;

static int is_masked;

/* The stretch that is open. */
static int is_open;
static u64 open_from, open_first, last_address;

/* Instructions that had been begun when the clock was read in user space. */
static u64 read_at;

static u64 idle_ns(void)
{
	void *cpu = current_cpu;
	s64 idle;

	current_cpu = 0;
	idle = icount_get() - icount_to_ns(icount_get_raw());
	current_cpu = cpu;
	return (u64)idle;
}

/* The kernel could switch here: the stretch ends. */
static void close_stretch(void)
{
	u64 length = *counter(BEGUN) - open_from;

	if (is_open && length << shift >= above) {
		put('S', 1);
		put(open_from, 8);
		put(length, 8);
		put(idle_ns(), 8);
		put(open_first, 8);
		put(last_address, 8);
	}
	is_open = 0;
}

static void on_block(unsigned cpu, void *number)
{
	struct block *block = blocks + (size)number;

	(void)cpu;
	if (block->kind & IS_USER) {
		close_stretch();
		is_masked = 0;
		*counter(PREEMPT_COUNT) = 0;
		return;
	}
	if (block->kind & IS_ENTRY)
		is_masked = 1;
	if (block->kind & IS_POINT || (preempts && !is_masked && !(*counter(PREEMPT_COUNT) & 0x7fffffff)))
		close_stretch();
	if (!is_open) {
		is_open = 1;
		open_from = *counter(BEGUN);
		open_first = block->address;
	}
	last_address = block->address;
}

/* Interrupts are off from now on, or on. */
static void on_mask(unsigned cpu, void *masks)
{
	(void)cpu;
	is_masked = masks != 0;
}

/* The CPU waits for an interrupt. */
static void on_halt(unsigned cpu, void *unused)
{
	(void)cpu;
	(void)unused;
	close_stretch();
}

static void on_read(unsigned cpu, void *unused)
{
	(void)cpu;
	(void)unused;
	read_at = *counter(BEGUN);
}

static void on_mark(u64 latency, u64 expiry)
{
	put('M', 1);
	put(latency, 8);
	put(expiry, 8);
	put(read_at, 8);
	put(idle_ns(), 8);
}

static u64 value(const u8 *code, int length)
{
	if (length == 1)
		return (u64)(s64)(s8)code[0];
	return (u64)(s64)(s32)((u32)code[0] | (u32)code[1] << 8 | (u32)code[2] << 16 | (u32)code[3] << 24);
}

/*
 * What an instruction adds to the preempt count: inc, dec, add and sub with a number, of a variable by its address or
 * by its distance from the instruction. 0 for every other instruction.
 */
static u64 added(const u8 *code, size length, u64 address)
{
	const u8 *at = code + (code[0] == 0x65);
	u64 number, target;
	int immediate = at[0] == 0x83 ? 1 : at[0] == 0x81 ? 4 : at[0] == 0xff ? 0 : -1;
	int operation = at[1] >> 3 & 7;

	if (immediate < 0 || length < 7)
		return 0;
	if ((at[1] & 0xc7) == 0x05) {
		target = address + length + value(at + 2, 4);
		at += 6;
	} else if ((at[1] & 0xc7) == 0x04 && at[2] == 0x25) {
		target = value(at + 3, 4);
		at += 7;
	} else {
		return 0;
	}
	if (!count_at && lock_at && address - lock_at < LOCK_BYTES && operation == 0)
		count_at = target;
	if (!count_at || target != count_at || at + immediate != code + length)
		return 0;
	number = immediate ? value(at, immediate) : 1;
	if (operation == 0)
		return number;
	if (immediate ? operation == 5 : operation == 1)
		return -number;
	return 0;
}

static void watch_instruction(struct insn *insn, const u8 *code, size length, u64 address)
{
	void (*callback)(unsigned, void *) = 0;
	size argument = 0;
	u64 more = preempts ? added(code, length, address) : 0;

	if (more)
		add_when_executed(insn, PREEMPT_COUNT, more);
	if (length == 1 && (code[0] == 0xfa || code[0] == 0xfb)) {
		callback = on_mask;
		argument = code[0] == 0xfa;
	} else if (length == 2 && code[0] == 0x48 && code[1] == 0xcf) {
		callback = on_mask;
	} else if (length == 1 && code[0] == 0xf4) {
		callback = on_halt;
	} else if (!(address >> 63) && length >= 2 && code[0] == 0x0f &&
		   (code[1] == 0x31 || (length == 3 && code[1] == 0x01 && code[2] == 0xf9))) {
		callback = on_read;
	}
	if (callback)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, callback, NO_REGISTERS, (void *)argument);
}

/*
 * What a block is. Since QEMU 8 a block is translated once for all addresses that show the same memory, and named by the
 * first one at which it is executed. A kernel that starts runs some of its functions at addresses like a program's.
 */
static void classify(struct block *block)
{
	u64 in_code = block->host - code_distance;

	if (code_distance && block->host && code_from <= in_code && in_code < code_to)
		block->address = in_code;
	block->kind = block->address >> 63 ? 0 : IS_USER;
	if (entry_from <= block->address && block->address < entry_to)
		block->kind |= IS_ENTRY;
	for (u32 n = 0; n < points_used; n++)
		if (points[n] == block->address)
			block->kind |= IS_POINT;
}

/* Learns from the first block at an address of the kernel's code where that code is, also for earlier blocks. */
static void find_code(const struct block *block)
{
	if (code_distance || !block->host || block->address < code_from || block->address >= code_to)
		return;
	code_distance = block->host - block->address;
	for (u64 n = 0; n < blocks_used; n++)
		classify(blocks + n);
}

static void on_translated(u64 id, struct tb *tb)
{
	size count = qemu_plugin_tb_n_insns(tb);
	struct insn *first = qemu_plugin_tb_get_insn(tb, 0);
	struct block *block = blocks + blocks_used;
	u64 moved;

	(void)id;
	if (blocks_used == BLOCKS) {
		is_lost = 1;
		return;
	}
	block->address = qemu_plugin_insn_vaddr(first);
	block->host = (size)qemu_plugin_insn_haddr(first);
	find_code(block);
	classify(block);
	moved = block->address - qemu_plugin_insn_vaddr(first);
	for (size n = 0; n < count; n++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, n);
		size length = qemu_plugin_insn_size(insn);
		u8 code[16];

		if (length > sizeof(code))
			length = sizeof(code);
		copy_code(insn, code, length);
		if (is_mark(code, length))
			qemu_plugin_register_vcpu_mem_cb(insn, on_marked, NO_REGISTERS, READS_AND_WRITES, 0);
		watch_instruction(insn, code, length, qemu_plugin_insn_vaddr(insn) + moved);
		add_when_executed(insn, BEGUN, 1);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, (void *)blocks_used++);
}

static int is_probe;

static const char *after_plus(const char *text)
{
	while (*text && *text != '+')
		text++;
	return *text ? text + 1 : 0;
}

static void read_argument(const char *text)
{
	const char *given;

	if ((given = behind(text, "out="))) {
		out = open(given, WRITE_CREATE_TRUNCATE, 0600);
	} else if ((given = behind(text, "shift="))) {
		shift = number(given);
	} else if ((given = behind(text, "above="))) {
		above = number(given);
	} else if ((given = behind(text, "preempts="))) {
		preempts = number(given);
	} else if ((given = behind(text, "lock="))) {
		lock_at = number(given);
	} else if ((given = behind(text, "entry="))) {
		entry_from = number(given);
		entry_to = (given = after_plus(given)) ? number(given) : 0;
	} else if ((given = behind(text, "code="))) {
		code_from = number(given);
		code_to = (given = after_plus(given)) ? number(given) : 0;
	} else if ((given = behind(text, "probe="))) {
		is_probe = 1;
	} else if ((given = behind(text, "points="))) {
		for (; given && points_used < POINTS; given = after_plus(given))
			points[points_used++] = number(given);
	}
}

__attribute__((visibility("default")))
int qemu_plugin_install(u64 id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int n = 0; n < argc; n++)
		read_argument(argv[n]);
	blocks = memory(BLOCKS * sizeof(struct block));
	if (out < 0 || !blocks || !icount_get || !icount_get_raw || !icount_to_ns)
		return 1;
	if (is_probe)
		end_probe();
	make_counters();
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	qemu_plugin_register_atexit_cb(id, on_end, 0);
	return 0;
}
