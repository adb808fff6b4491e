// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The rate allocator of one port of a programmable switch (PAM, Algorithm 2), as a program for the kernel's traffic control.
//
// It does what a switch's data plane does with a packet, and only by the means of one: additions, subtractions, shifts, comparisons and
// table lookups; no multiplication, no division, no loop; every array of registers is read and written at one place. What needs
// arithmetic is the control program's, which writes the maps: loads decay, C(t) is computed, filters are swapped, an idle critical
// transfer is removed. crates/switch/src/rate_allocator/hardware is the same pipeline in Rust, from which the vectors beside this file
// are made.
//
//   loads -> filter A, count A -> filter B, count B -> (k, p_k) -> r_k -> last heard -> C(t) -> reservation -> division -> min
//
// Numbers are 32 bits and saturate. Rates are counts of 2^unit bit/s. The header is read at a fixed place (crates/wire/src/scheduling.rs):
//
//   Ethernet 14 | IPv4 20 without options, or IPv6 40 without extensions | UDP 8 |
//   datagram: version and kind 1, flags 1, epoch 2, transfer 8, more 4, tag 8, own 8, kind 3 bits and unit 5, rank 3, rate 3, offer 3
//
// What is no scheduled datagram counts as other traffic and passes as it is. Times are those of the packet where it has one.

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

// Helpers of the kernel, by their numbers (include/uapi/linux/bpf.h).
static void *(*lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static u64 (*now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*load_bytes)(const struct __sk_buff *, u32 at, void *to, u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static long (*store_bytes)(struct __sk_buff *, u32 at, const void *from, u32 len, u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*csum_replace)(struct __sk_buff *, u32 at, u64 from, u64 to, u64 flags) = (void *)BPF_FUNC_l4_csum_replace;

// A map in the form that loaders read (BTF-defined).
#define ARRAY(name, entry, count)                                                                                      \
	struct {                                                                                                       \
		int (*type)[BPF_MAP_TYPE_ARRAY];                                                                       \
		int (*max_entries)[count];                                                                             \
		u32 *key;                                                                                              \
		entry *value;                                                                                          \
	} name SEC(".maps")

// Words of 64 cells in each array of a filter; the loader may set another power of two, and `port.mask` with it.
#define FILTER_WORDS 1024
// Divisors up to here have exact entries; from LIMIT on, nothing matches.
#define EXACT 1024
#define EXACT_LOG 10
#define LIMIT (1 << 20)
// Leading bits of a larger divisor that the log table matches.
#define MATCHED 7
#define LOG_ENTRIES ((20 - EXACT_LOG) << (MATCHED - 1))
// Bits below the unit of rates while shifts are added.
#define GUARD 8
#define COUNT_LIMIT (1u << 24)
#define LAST_RANK ((1u << 24) - 1)
#define U32_MAX 0xffffffffu

// First bytes of datagrams, version 1: a symbol, which may have the flag, and what only schedules.
#define SYMBOL_FIRST 0x11
#define SCHEDULED_FIRST 0x10
#define SCHEDULED_FLAG 0x10

// Kinds of scheduled datagrams.
enum { DATA = 0, LAST = 1, PROBE = 2, FIN = 3 };

// What the control program sets of the port.
struct port {
	u64 key[2];   // of its hash unit
	u64 settling; // nanoseconds for which an offer is kept
	u32 mask;     // cells of a filter's array, less one
	u32 line;     // rate of the line
	u32 unit;     // of rates
	u32 active;   // which filter's count counts
};

struct critical {
	u64 transfer;
	u32 rank; // LAST_RANK if there is none
	u32 pad;
};

struct reservation {
	u64 transfer;
	u64 rate;  // bit/s
	u64 until; // 0 if nothing was ever reserved
	u32 rank;
	u32 held;
};

// Up to eight right shifts to add up; 32 where there are fewer.
struct shifts {
	u8 by[8];
};

ARRAY(port_of, struct port, 1);
ARRAY(loads, u32, 2);
ARRAY(filter_a0, u64, FILTER_WORDS);
ARRAY(filter_a1, u64, FILTER_WORDS);
ARRAY(filter_a2, u64, FILTER_WORDS);
ARRAY(count_a, u32, 1);
ARRAY(filter_b0, u64, FILTER_WORDS);
ARRAY(filter_b1, u64, FILTER_WORDS);
ARRAY(filter_b2, u64, FILTER_WORDS);
ARRAY(count_b, u32, 1);
ARRAY(critical_of, struct critical, 1);
ARRAY(critical_rate, u32, 1);
ARRAY(critical_heard, u64, 1);
ARRAY(reservation_of, struct reservation, 1);
ARRAY(available_of, u32, 1);
ARRAY(division, struct shifts, EXACT + 1);
ARRAY(division_log, struct shifts, LOG_ENTRIES);

// What a scheduled datagram says.
struct claim {
	u64 transfer;
	u64 rate;  // bit/s
	u64 offer; // bit/s
	u32 rank;
	u32 kind;
};

struct place {
	u32 cell[3];
};

INLINE u32 add(u32 a, u32 b)
{
	u32 sum = a + b;
	return sum < a ? U32_MAX : sum;
}

INLINE u32 sub(u32 a, u32 b)
{
	return a < b ? 0 : a - b;
}

INLINE u64 least(u64 a, u64 b)
{
	return a < b ? a : b;
}

// A rate in units, rounded down, as 24 bits hold it.
INLINE u32 count_of(u64 rate, u32 unit)
{
	return least(rate >> (unit & 31), COUNT_LIMIT - 1);
}

INLINE u64 rotate(u64 x, int by)
{
	return x << by | x >> (64 - by);
}

#define SIP_ROUND(v0, v1, v2, v3)                                                                                      \
	do {                                                                                                           \
		v0 += v1; v1 = rotate(v1, 13); v1 ^= v0; v0 = rotate(v0, 32);                                           \
		v2 += v3; v3 = rotate(v3, 16); v3 ^= v2;                                                                \
		v0 += v3; v3 = rotate(v3, 21); v3 ^= v0;                                                                \
		v2 += v1; v1 = rotate(v1, 17); v1 ^= v2; v2 = rotate(v2, 32);                                           \
	} while (0)

// The hash unit: SipHash-1-3 of 128 bits, of which three parts of 32 bits are places.
INLINE struct place place_of(const struct port *port, u64 transfer)
{
	u64 v0 = port->key[0] ^ 0x736f6d6570736575ull, v1 = port->key[1] ^ 0x646f72616e646f6dull ^ 0xee;
	u64 v2 = port->key[0] ^ 0x6c7967656e657261ull, v3 = port->key[1] ^ 0x7465646279746573ull;
	u64 tail = 8ull << 56, low, high;
	v3 ^= transfer;
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= transfer;
	v3 ^= tail;
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= tail;
	v2 ^= 0xee;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	low = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	high = v0 ^ v1 ^ v2 ^ v3;
	return (struct place){ .cell = { (u32)low & port->mask, (u32)(low >> 32) & port->mask, (u32)high & port->mask } };
}

// One array of a filter: was the cell set? It is then, or is as before, or is cleared.
enum { SET, READ, CLEAR };
INLINE int touch(void *array, u32 cell, int action)
{
	u32 word = cell >> 6;
	u64 bit = 1ull << (cell & 63), before;
	u64 *at = lookup(array, &word);
	if (!at)
		return 1;
	before = *at;
	if (action == SET)
		*at = before | bit;
	if (action == CLEAR)
		*at = before & ~bit;
	return (before & bit) != 0;
}

// A claim passes one filter and its counter (lines 1-8): data enters, all else leaves.
INLINE u32 pass_filter(void *first, void *second, void *third, void *counter, const struct place *place, u32 kind)
{
	u32 zero = 0, *count;
	int action = kind == DATA ? SET : READ;
	int known = touch(first, place->cell[0], action);
	known &= touch(second, place->cell[1], action);
	// Only the last stage knows whether the transfer is in the filter at all.
	known &= touch(third, place->cell[2], kind == DATA ? SET : known ? CLEAR : READ);
	count = lookup(counter, &zero);
	if (!count)
		return 0;
	if (kind == DATA && !known)
		*count = add(*count, 1);
	if (kind != DATA && known)
		*count = sub(*count, 1);
	return *count;
}

// At most dividend / divisor: the divisor is the key, the entry tells which right shifts to add up.
INLINE u32 divide(u32 dividend, u32 divisor)
{
	struct shifts *entry;
	u32 wide, sum = 0;
	if (divisor <= EXACT) {
		entry = lookup(&division, &divisor);
	} else {
		u32 octave = EXACT_LOG, key;
		if (divisor >= LIMIT)
			return 0;
		octave += (divisor >= 1 << 11) + (divisor >= 1 << 12) + (divisor >= 1 << 13) + (divisor >= 1 << 14) +
			  (divisor >= 1 << 15) + (divisor >= 1 << 16) + (divisor >= 1 << 17) + (divisor >= 1 << 18) +
			  (divisor >= 1 << 19);
		key = ((octave - EXACT_LOG) << (MATCHED - 1)) + (divisor >> (octave + 1 - MATCHED)) - (1 << (MATCHED - 1));
		entry = lookup(&division_log, &key);
	}
	if (!entry)
		return 0;
	wide = dividend >> (32 - GUARD) ? U32_MAX : dividend << GUARD;
#define TERM(n) sum = add(sum, (u64)wide >> (entry->by[n] & 63))
	TERM(0); TERM(1); TERM(2); TERM(3); TERM(4); TERM(5); TERM(6); TERM(7);
	return sum >> GUARD;
}

// What a claim is granted (lines 9-17), in units.
INLINE u32 share_of(const struct port *port, const struct claim *claim, u64 now)
{
	u32 zero = 0;
	struct place place = place_of(port, claim->transfer);
	u32 in_a = pass_filter(&filter_a0, &filter_a1, &filter_a2, &count_a, &place, claim->kind);
	u32 in_b = pass_filter(&filter_b0, &filter_b1, &filter_b2, &count_b, &place, claim->kind);
	u32 active = port->active ? in_b : in_a;
	struct critical *critical = lookup(&critical_of, &zero);
	struct reservation *reservation = lookup(&reservation_of, &zero);
	u32 *rate = lookup(&critical_rate, &zero), *available = lookup(&available_of, &zero);
	u64 *heard = lookup(&critical_heard, &zero);
	int own, cleared, ahead, is_critical, there_is;
	u32 taken, reserved = 0, reserves = 0, c;
	if (!critical || !reservation || !rate || !available || !heard)
		return port->line;

	// The cell of the critical transfer.
	own = critical->rank < LAST_RANK && critical->transfer == claim->transfer;
	cleared = own && (claim->kind != DATA || claim->rank == LAST_RANK);
	if (cleared) {
		critical->transfer = 0;
		critical->rank = LAST_RANK;
	}
	ahead = (own && !cleared) || claim->rank < critical->rank;
	is_critical = ahead && claim->kind == DATA;
	there_is = critical->rank < LAST_RANK;
	if (is_critical) {
		critical->transfer = claim->transfer;
		critical->rank = claim->rank;
		*heard = now;
		*rate = count_of(claim->rate, port->unit);
	} else if (cleared) {
		*rate = 0;
	}
	taken = *rate;
	c = *available;

	// The reservation: a probe's offer is kept from those behind it; anything else of its holder ends it.
	if (claim->kind != PROBE) {
		if (reservation->held && reservation->transfer == claim->transfer)
			reservation->held = 0;
	} else {
		int held = reservation->held;
		int is_other = !held || reservation->transfer != claim->transfer;
		if (held && is_other && now < reservation->until && reservation->rank <= claim->rank) {
			reserves = 1;
			reserved = count_of(reservation->rate, port->unit);
		} else if (ahead && is_other && port->settling) {
			reservation->held = 1;
			reservation->transfer = claim->transfer;
			reservation->rank = claim->rank;
			reservation->rate = least(claim->offer, least(c, port->line) << (port->unit & 31));
			reservation->until = now + port->settling;
		}
	}

	if (claim->kind == FIN)
		return port->line;
	if (is_critical || (ahead && !reserves))
		return c;
	if (reserved > taken)
		taken = reserved;
	return divide(sub(c, taken), add(sub(active, there_is), claim->kind != DATA));
}

// Where a UDP datagram's payload begins; 0 if the frame has none that can be read.
INLINE u32 payload_of(struct __sk_buff *skb)
{
	u8 ip[10];
	u16 type;
	if (load_bytes(skb, 12, &type, 2) || load_bytes(skb, 14, ip, 10))
		return 0;
	// Neither options nor fragments.
	if (type == __builtin_bswap16(0x0800) && ip[0] == 0x45 && ip[9] == IPPROTO_UDP && !(ip[6] & 0x3f) && !ip[7])
		return 14 + 20 + 8;
	if (type == __builtin_bswap16(0x86dd) && ip[6] == IPPROTO_UDP)
		return 14 + 40 + 8;
	return 0;
}

SEC("classifier")
int pam(struct __sk_buff *skb)
{
	u8 head[42];
	struct claim claim;
	u32 zero = 0, at = payload_of(skb), unit, offer, granted, is_claim = 0, index, *load, from, to;
	u64 most, now = skb->tstamp;
	struct port *port = lookup(&port_of, &zero);
	if (!port)
		return TC_ACT_OK;
	if (!now)
		now = now_ns();
	if (at && !load_bytes(skb, at, head, sizeof(head))) {
		is_claim = head[0] == SYMBOL_FIRST ? (head[1] & SCHEDULED_FLAG) != 0 : head[0] == SCHEDULED_FIRST;
		claim.kind = head[32] >> 5;
		is_claim &= claim.kind <= FIN;
	}
	index = is_claim;
	load = lookup(&loads, &index);
	if (load)
		*load = add(*load, skb->len);
	if (!is_claim)
		return TC_ACT_OK;

	unit = head[32] & 31;
	claim.transfer = (u64)head[4] << 56 | (u64)head[5] << 48 | (u64)head[6] << 40 | (u64)head[7] << 32 | (u64)head[8] << 24 |
			 (u64)head[9] << 16 | (u64)head[10] << 8 | head[11];
	claim.rank = (u32)head[33] << 16 | (u32)head[34] << 8 | head[35];
	claim.rate = (u64)((u32)head[36] << 16 | (u32)head[37] << 8 | head[38]) << unit;
	offer = (u32)head[39] << 16 | (u32)head[40] << 8 | head[41];
	claim.offer = (u64)offer << unit;
	granted = claim.kind == LAST ? port->line : share_of(port, &claim, now);
	most = least(claim.offer, least(granted, port->line) << (port->unit & 31));
	offer = least(offer, count_of(most, unit));

	// The offer's three bytes, and the one before them: two words of the checksum.
	__builtin_memcpy(&from, &head[38], 4);
	head[39] = offer >> 16;
	head[40] = offer >> 8;
	head[41] = offer;
	__builtin_memcpy(&to, &head[38], 4);
	if (from != to) {
		csum_replace(skb, at - 2, from, to, BPF_F_MARK_MANGLED_0 | sizeof(to));
		store_bytes(skb, at + 38, &to, sizeof(to), 0);
	}
	return TC_ACT_OK;
}

char text_of_license[] SEC("license") = "Dual MIT/GPL";
