/*
 * What the lab's plugins of the emulator share: the emulator's interface, the file that they write, the sampler's marks, and
 * their arguments. It includes no header of the emulator, which distributions don't package: what is needed is declared
 * here. INTERFACE is the version of the emulator's plugin interface to compile for:
 *   1  QEMU up to 8
 *   2  QEMU 9.0: counters are in memory of the emulator, which has one for each CPU
 *   3  QEMU 9.1 and later: an instruction's bytes are copied
 */

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned int u32;
typedef signed int s32;
typedef unsigned long long u64;
typedef signed long long s64;
typedef unsigned long size;

struct tb;
struct insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(u64, void (*)(u64, struct tb *));
extern size qemu_plugin_tb_n_insns(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size);
extern size qemu_plugin_insn_size(const struct insn *);
extern u64 qemu_plugin_insn_vaddr(const struct insn *);
extern void *qemu_plugin_insn_haddr(const struct insn *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, u32, u64, void *), int, int, void *);
extern void qemu_plugin_register_atexit_cb(u64, void (*)(u64, void *), void *);

#if INTERFACE >= 3
extern size qemu_plugin_insn_data(const struct insn *, void *, size);
#else
extern const void *qemu_plugin_insn_data(const struct insn *);
#endif

#if INTERFACE >= 2
struct scoreboard;
/* Passed by value. */
struct counter {
	struct scoreboard *of_each_cpu;
	size offset;
};
extern struct scoreboard *qemu_plugin_scoreboard_new(size);
extern void *qemu_plugin_scoreboard_find(struct scoreboard *, unsigned);
extern void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct insn *, int, struct counter, u64);
#else
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct insn *, int, void *, u64);
#endif

extern void _exit(int) __attribute__((noreturn));
extern int open(const char *, int, ...);
extern long write(int, const void *, size);
extern void *mmap(void *, size, int, int, int, long);

__attribute__((visibility("default"))) const int qemu_plugin_version = INTERFACE;

/* Of <fcntl.h> and <sys/mman.h> of Linux, the same on x86-64 and arm64. */
enum { WRITE_CREATE_TRUNCATE = 01 | 0100 | 01000 };
enum { READ_WRITE = 3, PRIVATE_ANONYMOUS_NORESERVE = 2 | 0x20 | 0x4000 };
/* QEMU 7.2 calls for reads only when writes are asked for, too. */
enum { NO_REGISTERS = 0, ADD = 0, READS_AND_WRITES = 3 };

/*
 * Numbers to which the emulator's own code adds: instructions that were begun, and the preempt count. A run that can be
 * replayed has one CPU.
 */
enum { BEGUN, PREEMPT_COUNT, COUNTERS };

#if INTERFACE >= 2
static struct scoreboard *counters;

static u64 *counter(int which)
{
	return (u64 *)qemu_plugin_scoreboard_find(counters, 0) + which;
}

/* Whenever the instruction is executed, adds to a counter. */
static void add_when_executed(struct insn *insn, int which, u64 number)
{
	struct counter one = { counters, (size)which * sizeof(u64) };

	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, ADD, one, number);
}

static void make_counters(void)
{
	counters = qemu_plugin_scoreboard_new(COUNTERS * sizeof(u64));
}
#else
static u64 counters[COUNTERS];

static u64 *counter(int which)
{
	return counters + which;
}

static void add_when_executed(struct insn *insn, int which, u64 number)
{
	qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD, counters + which, number);
}

static void make_counters(void)
{
}
#endif

/* Copies the bytes of an instruction of this length. */
static void copy_code(const struct insn *insn, u8 *to, size length)
{
#if INTERFACE >= 3
	qemu_plugin_insn_data(insn, to, length);
#else
	const u8 *code = qemu_plugin_insn_data(insn);

	for (size at = 0; at < length; at++)
		to[at] = code[at];
#endif
}

static int out = -1;

/* Something isn't in the file. */
static int is_lost;

/* The file ends inside an entry: it has so many bytes, or the disk is full. */
static int is_cut;

#define WRITTEN_MAX (1ul << 31)

static u64 written;

static u8 buffer[1 << 16];
static u32 buffered;

static void flush(void)
{
	u32 from = 0;

	while (from < buffered) {
		long n = is_cut || written > WRITTEN_MAX ? 0 : write(out, buffer + from, buffered - from);

		if (n <= 0) {
			is_cut = 1;
			break;
		}
		from += n;
		written += n;
	}
	buffered = 0;
}

static void put(u64 value, int length)
{
	if (buffered + 8 > sizeof(buffer))
		flush();
	for (; length > 0; length--, value >>= 8)
		buffer[buffered++] = (u8)value;
}

static void on_end(u64 id, void *unused)
{
	(void)id;
	(void)unused;
	if (is_lost)
		put('L', 1);
	put('E', 1);
	flush();
}

/* The emulator was only to load the plugin: ends it. */
static void end_probe(void)
{
	put('E', 1);
	flush();
	_exit(is_lost || is_cut);
}

/* The bytes of a mark so far: a latency and the expiry from which it counts. */
static u64 mark[2];
static u32 marked;

/* What a plugin does with a whole mark. */
static void on_mark(u64 latency, u64 expiry);

/* Whether an instruction is one of the 16 loads of a mark (see mark.rs of rtscope-sys). */
static int is_mark(const u8 *code, size length)
{
	static const u8 x86[] = { 0x8a, 0x80, 0x73, 0x72, 0x74, 0x6d };
	static const u8 arm[] = { 0x3f, 0x5d, 0x5b, 0x39 };
	const u8 *wanted = length == sizeof(x86) ? x86 : arm;

	if (length != sizeof(x86) && length != sizeof(arm))
		return 0;
	for (size n = 0; n < length; n++)
		if (code[n] != wanted[n])
			return 0;
	return 1;
}

/*
 * A load of a mark: its address ends in the mark's next byte, and in the byte's number before it. A thread that was
 * preempted inside a mark by another one that marks goes on with a number that isn't the next.
 */
static void on_marked(unsigned cpu, u32 kind, u64 address, void *unused)
{
	u32 number = address >> 8 & 15;

	(void)cpu;
	(void)kind;
	(void)unused;
	if (number == 0)
		mark[0] = mark[1] = marked = 0;
	if (number != marked)
		return;
	mark[marked / 8] |= (address & 0xff) << marked % 8 * 8;
	if (++marked == 16)
		on_mark(mark[0], mark[1]);
}

static void *memory(u64 length)
{
	void *at = mmap(0, length, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, -1, 0);

	return at == (void *)-1 ? 0 : at;
}

/* The rest of a text behind its beginning; none when it begins in another way. */
static const char *behind(const char *text, const char *beginning)
{
	while (*beginning)
		if (*text++ != *beginning++)
			return 0;
	return text;
}

static u64 number(const char *text)
{
	u64 sum = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		sum = sum * 10 + (u64)(*text - '0');
	return sum;
}
