/*
 * Plugin of the emulator: writes which instructions a guest executed before each of its late wake-ups.
 *
 * The emulator translates a guest's code in blocks. This plugin keeps the blocks that were executed last in a ring,
 * each with the number of instructions executed before it. The guest marks a late wake-up by loads that nothing else
 * has (see mark.rs of rtscope-sys). At a mark the plugin writes the blocks since well before the wake-up was due.
 *
 * It changes nothing that the guest can see. It follows common.h.
 *
 * Arguments: out=FILE, shift=N (an instruction takes 2^N ns), above=NS (smaller latencies are left out), probe=1 (end
 * the emulator as soon as it has loaded the plugin, with an empty file).
 *
 * The file is a sequence of entries, all numbers little-endian:
 *   'B' number(4) address(8) host(8) count(4), then for each instruction length(1) and its bytes. `host` is where the
 *       emulator has the guest's memory of the block, or 0. Since QEMU 8 a block is translated once for all addresses
 *       that show the same memory, so `address` may be another one than that at which the block is executed.
 *   'W' latency(8) expiry(8) mark(8) count(4), then for each executed block number(4) before(8)
 *   'L'    something was lost: memory was full
 *   'E'    the end; without it, the disk was full, or the file too long
 * `mark` and `before` are numbers of executed instructions.
 */

/* So many executed blocks are kept, and so many instructions before a wake-up was due. */
enum { RING = 1 << 22, BEFORE = 20000 };

/* So many blocks, and bytes of their instructions, fit. */
enum { BLOCKS = 1 << 23 };
#define BYTES (1ul << 30)

struct block {
	u64 address;
	u64 host;
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

static u64 shift = 2, above;

static void put_block(u32 number)
{
	struct block *block = blocks + number;

	block->is_written = 1;
	put('B', 1);
	put(number, 4);
	put(block->address, 8);
	put(block->host, 8);
	put(block->count, 4);
	for (u64 at = block->bytes; at < block->bytes_end; at++)
		put(bytes[at], 1);
}

static void put_window(u64 latency, u64 expiry)
{
	u64 length = (latency >> shift) + BEFORE;
	u64 begun = *counter(BEGUN);
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
	one->before = *counter(BEGUN);
	one->block = (u32)(size)number;
}

static void on_mark(u64 latency, u64 expiry)
{
	if (latency >= above)
		put_window(latency, expiry);
}

static void on_translated(u64 id, struct tb *tb)
{
	size instructions = qemu_plugin_tb_n_insns(tb);
	struct block *block = blocks + blocks_used;

	(void)id;
	if (blocks_used == BLOCKS || bytes_used + instructions * 16 > BYTES) {
		is_lost = 1;
		return;
	}
	block->count = (u32)instructions;
	block->bytes = bytes_used;
	for (size n = 0; n < instructions; n++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, n);
		size length = qemu_plugin_insn_size(insn);
		u8 *code = bytes + bytes_used + 1;

		if (n == 0) {
			block->address = qemu_plugin_insn_vaddr(insn);
			block->host = (size)qemu_plugin_insn_haddr(insn);
		}
		bytes[bytes_used] = (u8)length;
		copy_code(insn, code, length);
		bytes_used += 1 + length;
		if (is_mark(code, length))
			qemu_plugin_register_vcpu_mem_cb(insn, on_marked, NO_REGISTERS, READS_AND_WRITES, 0);
		add_when_executed(insn, BEGUN, 1);
	}
	block->bytes_end = bytes_used;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, (void *)blocks_used++);
}

__attribute__((visibility("default")))
int qemu_plugin_install(u64 id, const void *info, int argc, char **argv)
{
	int is_probe = 0;

	(void)info;
	for (int n = 0; n < argc; n++) {
		const char *value;

		if ((value = behind(argv[n], "out=")))
			out = open(value, WRITE_CREATE_TRUNCATE, 0600);
		else if ((value = behind(argv[n], "shift=")))
			shift = number(value);
		else if ((value = behind(argv[n], "above=")))
			above = number(value);
		else if ((value = behind(argv[n], "probe=")))
			is_probe = 1;
	}
	blocks = memory(BLOCKS * sizeof(struct block));
	bytes = memory(BYTES);
	ring = memory(RING * sizeof(struct executed));
	if (out < 0 || !blocks || !bytes || !ring)
		return 1;
	if (is_probe)
		end_probe();
	make_counters();
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	qemu_plugin_register_atexit_cb(id, on_end, 0);
	return 0;
}
