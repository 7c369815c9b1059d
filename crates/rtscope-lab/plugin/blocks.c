/*
 * Plugin of the emulator: writes which instructions a guest executed before each of its late wake-ups.
 *
 * The emulator translates a guest's code in blocks. This plugin keeps the blocks that were executed last in a ring,
 * each with the number of instructions executed before it. The guest marks a late wake-up by instructions that do
 * nothing (see mark.rs of rtscope-sys). At a mark the plugin writes the blocks since well before the wake-up was due.
 *
 * It changes nothing that the guest can see. It includes no header of the emulator, which distributions don't package:
 * what it needs is declared here, as of version 1 of the interface (QEMU 7 and 8).
 *
 * Arguments: out=FILE, shift=N (an instruction takes 2^N ns), above=NS (smaller latencies are left out).
 *
 * The file is a sequence of entries, all numbers little-endian:
 *   'B' number(4) address(8) count(4), then for each instruction length(1) and its bytes
 *   'W' latency(8) expiry(8) mark(8) count(4), then for each executed block number(4) before(8)
 *   'L'    something was lost: memory or disk was full
 *   'E'    the end
 * `mark` and `before` are numbers of executed instructions.
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned long size;

struct tb;
struct insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(u64, void (*)(u64, struct tb *));
extern size qemu_plugin_tb_n_insns(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size);
extern const void *qemu_plugin_insn_data(const struct insn *);
extern size qemu_plugin_insn_size(const struct insn *);
extern u64 qemu_plugin_insn_vaddr(const struct insn *);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_insn_exec_inline(struct insn *, int, void *, u64);
extern void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, u32, u64, void *), int, int, void *);
extern void qemu_plugin_register_atexit_cb(u64, void (*)(u64, void *), void *);

extern int open(const char *, int, ...);
extern long write(int, const void *, size);
extern void *mmap(void *, size, int, int, int, long);

__attribute__((visibility("default"))) const int qemu_plugin_version = 1;

/* Of <fcntl.h> and <sys/mman.h> of Linux, the same on x86-64 and arm64. */
enum { WRITE_CREATE_TRUNCATE = 01 | 0100 | 01000 };
enum { READ_WRITE = 3, PRIVATE_ANONYMOUS_NORESERVE = 2 | 0x20 | 0x4000 };
/* QEMU 7.2 calls for reads only when writes are asked for, too. */
enum { NO_REGISTERS = 0, ADD = 0, READS_AND_WRITES = 3 };

/* So many executed blocks are kept, and so many instructions before a wake-up was due. */
enum { RING = 1 << 22, BEFORE = 20000 };

/* So many blocks, and bytes of their instructions, fit. */
enum { BLOCKS = 1 << 23 };
#define BYTES (1ul << 30)

struct block {
	u64 address;
	u32 count;
	u32 is_written;
	u64 bytes;
	u64 bytes_end;
};

struct executed {
	u64 before;
	u32 block;
	u32 unused;
};

static struct block *blocks;
static u8 *bytes;
static struct executed *ring;
static u64 blocks_used, bytes_used, executed_used;

/* Instructions that were begun. The emulator's own code adds to it. */
static u64 begun;

static u64 shift = 2, above;
static int out = -1;
static int is_lost;

static u8 buffer[1 << 16];
static u32 buffered;

/* The bytes of a mark so far. */
static u64 mark[2];
static u32 marked;

static void flush(void)
{
	u32 from = 0;

	while (from < buffered) {
		long n = write(out, buffer + from, buffered - from);

		if (n <= 0) {
			is_lost = 1;
			break;
		}
		from += n;
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

static void put_block(u32 number)
{
	struct block *block = blocks + number;

	block->is_written = 1;
	put('B', 1);
	put(number, 4);
	put(block->address, 8);
	put(block->count, 4);
	for (u64 at = block->bytes; at < block->bytes_end; at++)
		put(bytes[at], 1);
}

static void put_window(u64 latency, u64 expiry)
{
	u64 length = (latency >> shift) + BEFORE;
	u64 from = begun > length ? begun - length : 0;
	u64 first = executed_used;
	u64 oldest = executed_used > RING ? executed_used - RING : 0;

	while (first > oldest && ring[(first - 1) % RING].before >= from)
		first--;
	for (u64 n = first; n < executed_used; n++)
		if (!blocks[ring[n % RING].block].is_written)
			put_block(ring[n % RING].block);
	put('W', 1);
	put(latency, 8);
	put(expiry, 8);
	put(begun, 8);
	put(executed_used - first, 4);
	for (u64 n = first; n < executed_used; n++) {
		put(ring[n % RING].block, 4);
		put(ring[n % RING].before, 8);
	}
	flush();
}

static void on_block(unsigned cpu, void *number)
{
	struct executed *one = ring + executed_used++ % RING;

	(void)cpu;
	one->before = begun;
	one->block = (u32)(size)number;
}

/* A load behind an instruction of a mark: its address ends in the mark's next byte. */
static void on_marked(unsigned cpu, u32 kind, u64 address, void *unused)
{
	(void)cpu;
	(void)kind;
	(void)unused;
	mark[marked / 8] |= (address & 0xff) << marked % 8 * 8;
	if (++marked < 16)
		return;
	if (mark[0] >= above)
		put_window(mark[0], mark[1]);
	mark[0] = mark[1] = marked = 0;
}

static int is_mark(const u8 *code, size length)
{
	static const u8 x86[] = { 0x0f, 0x1f, 0x80, 0x73, 0x72, 0x74, 0x6d };
	static const u8 arm[] = { 0x7f, 0x4e, 0x8e, 0xd2 };
	const u8 *wanted = length == sizeof(x86) ? x86 : arm;

	if (length != sizeof(x86) && length != sizeof(arm))
		return 0;
	for (size n = 0; n < length; n++)
		if (code[n] != wanted[n])
			return 0;
	return 1;
}

static void on_translated(u64 id, struct tb *tb)
{
	size count = qemu_plugin_tb_n_insns(tb);
	struct block *block = blocks + blocks_used;
	int follows_mark = 0;

	(void)id;
	if (blocks_used == BLOCKS || bytes_used + count * 16 > BYTES) {
		is_lost = 1;
		return;
	}
	block->count = (u32)count;
	block->bytes = bytes_used;
	for (size n = 0; n < count; n++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, n);
		const u8 *code = qemu_plugin_insn_data(insn);
		size length = qemu_plugin_insn_size(insn);

		if (n == 0)
			block->address = qemu_plugin_insn_vaddr(insn);
		bytes[bytes_used++] = (u8)length;
		for (size at = 0; at < length; at++)
			bytes[bytes_used++] = code[at];
		if (follows_mark)
			qemu_plugin_register_vcpu_mem_cb(insn, on_marked, NO_REGISTERS, READS_AND_WRITES, 0);
		follows_mark = is_mark(code, length);
		qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD, &begun, 1);
	}
	block->bytes_end = bytes_used;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, (void *)blocks_used++);
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

__attribute__((visibility("default")))
int qemu_plugin_install(u64 id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int n = 0; n < argc; n++) {
		const char *value;

		if ((value = behind(argv[n], "out=")))
			out = open(value, WRITE_CREATE_TRUNCATE, 0600);
		else if ((value = behind(argv[n], "shift=")))
			shift = number(value);
		else if ((value = behind(argv[n], "above=")))
			above = number(value);
	}
	blocks = memory(BLOCKS * sizeof(struct block));
	bytes = memory(BYTES);
	ring = memory(RING * sizeof(struct executed));
	if (out < 0 || !blocks || !bytes || !ring)
		return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	qemu_plugin_register_atexit_cb(id, on_end, 0);
	return 0;
}
