// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The rate allocator of a programmable switch (PAM, Algorithm 2), in P4-16 for the architecture v1model.
//
// The same pipeline as pam.bpf.c beside this file and crates/switch/src/rate_allocator/hardware, at the egress of every port (PAM §IV): a
// packet to a group is forwarded at the ingress, and each of its copies passes here.
//
//   loads -> filter A, count A -> filter B, count B -> (k, p_k) -> r_k -> last heard -> C(t) -> reservation -> division -> min
//
// Integers only: additions, subtractions, shifts, comparisons and table lookups; no multiplication, no division. For each packet an array of
// registers is read once and written once, at one place. What needs arithmetic is the control program's, which fills the tables and
// writes registers between packets: loads decay, C(t) is computed, filters are swapped, an idle critical transfer is removed (PAM §IV-A).
//
// Numbers are 32 bits and saturate. Rates are counts of 2^unit bit/s. The header is read at a fixed place (crates/wire/src/scheduling.rs).
// What is no scheduled datagram counts as other traffic and passes as it is. At a port without an entry in `ports` all passes so, and
// nothing counts.

#include <core.p4>
#include <v1model.p4>

// Port numbers have nine bits.
#define PORTS 512
// Cells in each array of a filter. All ports share them; a port hashes with its own key (PAM §IV-A) to as many as its mask tells.
#define FILTER_CELLS 32768
// Bits below the unit of rates while shifts are added.
#define GUARD 8

const bit<24> LAST_RANK = 0xffffff;
const bit<32> WORD_MAX = 0xffffffff;

// Kinds of scheduled datagrams.
const bit<3> DATA = 0;
const bit<3> LAST = 1;
const bit<3> PROBE = 2;
const bit<3> FIN = 3;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_and_length;
    bit<8> traffic_class;
    bit<16> length;
    bit<16> identification;
    bit<2> reserved_and_whole;
    bit<1> more_fragments;
    bit<13> fragment_offset;
    bit<8> hops;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_t {
    bit<32> version_class_and_flow;
    bit<16> length;
    bit<8> next_header;
    bit<8> hops;
    bit<128> source;
    bit<128> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

// What stands before the scheduling header in a datagram.
header datagram_t {
    bit<8> version_and_kind;
    bit<8> flags;
    bit<16> epoch;
    bit<64> transfer;
    bit<32> more;
    bit<64> tag;
    bit<64> own;
}

header scheduling_t {
    bit<3> kind;
    bit<5> unit;
    bit<24> rank;
    bit<24> rate;
    bit<24> offer;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ipv6_t ipv6;
    udp_t udp;
    datagram_t datagram;
    scheduling_t scheduling;
}

struct metadata_t {}

// What the control program sets of a port.
struct port_t {
    bit<64> key0; // of its hash unit
    bit<64> key1;
    bit<32> mask; // cells of a filter's array that it uses, less one
    bit<32> line; // rate of the line
    bit<5> unit; // of rates
    bit<64> settling; // nanoseconds for which an offer is kept
}

// What a scheduled datagram says.
struct claim_t {
    bit<3> kind;
    bit<24> rank;
    bit<64> transfer;
    bit<64> rate; // bit/s
    bit<64> offer; // bit/s
}

// A rate in units, rounded down, as 24 bits hold it.
bit<32> count_of(in bit<64> rate, in bit<5> unit) {
    bit<64> count = rate >> unit;
    return count[63:24] == 0 ? (bit<32>)count : 0xffffff;
}

bit<64> least(in bit<64> a, in bit<64> b) {
    return a < b ? a : b;
}

// A packet that ends before a header does passes with those that it has.
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x0800: ipv4;
            0x86dd: ipv6;
            default: accept;
        }
    }

    // Neither options nor fragments.
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_and_length, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0x45, 0, 0, 17): udp;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            17: udp;
            default: accept;
        }
    }

    // First bytes of datagrams, version 1: a symbol with the flag, and what only schedules.
    state udp {
        packet.extract(hdr.udp);
        transition select(packet.lookahead<bit<16>>()) {
            0x1110 &&& 0xff10: datagram;
            0x1000 &&& 0xff00: datagram;
            default: accept;
        }
    }

    state datagram {
        packet.extract(hdr.datagram);
        packet.extract(hdr.scheduling);
        transition accept;
    }
}

// Where packets go is no part of PAM: by the address of the host or group, to one port or to those of a group.
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action drop() {
        mark_to_drop(standard);
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }

    action to_group(bit<16> group) {
        standard.mcast_grp = group;
    }

    table forward {
        key = { hdr.ethernet.destination: exact; }
        actions = { to_port; to_group; drop; }
        default_action = drop();
    }

    apply {
        forward.apply();
    }
}

// SipHash-1-3 of 128 bits, of which three parts of 32 bits are places, as the vectors have it. A chip has a hash unit of its own, whose
// places would be others.
control HashUnit(in port_t port, in bit<64> transfer, out bit<32> cell0, out bit<32> cell1, out bit<32> cell2) {
    bit<64> v0;
    bit<64> v1;
    bit<64> v2;
    bit<64> v3;

    action sip_round() {
        v0 = v0 + v1;
        v1 = v1[50:0] ++ v1[63:51];
        v1 = v1 ^ v0;
        v0 = v0[31:0] ++ v0[63:32];
        v2 = v2 + v3;
        v3 = v3[47:0] ++ v3[63:48];
        v3 = v3 ^ v2;
        v0 = v0 + v3;
        v3 = v3[42:0] ++ v3[63:43];
        v3 = v3 ^ v0;
        v2 = v2 + v1;
        v1 = v1[46:0] ++ v1[63:47];
        v1 = v1 ^ v2;
        v2 = v2[31:0] ++ v2[63:32];
    }

    apply {
        // Eight bytes are hashed, and their number is the last byte.
        const bit<64> tail = 64w8 << 56;
        v0 = port.key0 ^ 0x736f6d6570736575;
        v1 = port.key1 ^ 0x646f72616e646f6d ^ 0xee;
        v2 = port.key0 ^ 0x6c7967656e657261;
        v3 = port.key1 ^ 0x7465646279746573 ^ transfer;
        sip_round();
        v0 = v0 ^ transfer;
        v3 = v3 ^ tail;
        sip_round();
        v0 = v0 ^ tail;
        v2 = v2 ^ 0xee;
        sip_round();
        sip_round();
        sip_round();
        bit<64> low = v0 ^ v1 ^ v2 ^ v3;
        v1 = v1 ^ 0xdd;
        sip_round();
        sip_round();
        sip_round();
        bit<64> high = v0 ^ v1 ^ v2 ^ v3;
        cell0 = low[31:0] & port.mask;
        cell1 = low[63:32] & port.mask;
        cell2 = high[31:0] & port.mask;
    }
}

// A claim passes one filter and its counter (Algorithm 2, lines 1-8): data enters, all else leaves.
control BloomFilter(in bit<32> port, in bool enters, in bit<32> cell0, in bit<32> cell1, in bit<32> cell2, out bit<32> transfers) {
    register<bit<1>>(FILTER_CELLS) cells0;
    register<bit<1>>(FILTER_CELLS) cells1;
    register<bit<1>>(FILTER_CELLS) cells2;
    register<bit<32>>(PORTS) count;

    apply {
        bit<1> set = enters ? 1w1 : 0;
        bit<1> was0;
        bit<1> was1;
        bit<1> was2;
        bit<32> before;
        cells0.read(was0, cell0);
        cells0.write(cell0, was0 | set);
        cells1.read(was1, cell1);
        cells1.write(cell1, was1 | set);
        // Only the last stage knows whether the transfer is in the filter at all.
        cells2.read(was2, cell2);
        cells2.write(cell2, set | (was2 & ~(was0 & was1)));
        bit<1> known = was0 & was1 & was2;
        count.read(before, port);
        transfers = before |+| (bit<32>)(set & ~known) |-| (bit<32>)(~set & known);
        count.write(port, transfers);
    }
}

// At most dividend / divisor: the divisor is the key, the entry tells which right shifts to add up (PAM §IV-A). Up to 1,024 each divisor
// has an entry of its own; beyond, the log table matches the leading seven bits (footnote 6). What nothing matches is divided to zero.
control Division(in bit<32> dividend, in bit<32> divisor, out bit<32> quotient) {
    bit<32> wide;
    bit<32> sum;

    // Up to eight; 32 where there are fewer.
    action add_shifts(bit<8> by0, bit<8> by1, bit<8> by2, bit<8> by3, bit<8> by4, bit<8> by5, bit<8> by6, bit<8> by7) {
        sum = (wide >> by0) |+| (wide >> by1) |+| (wide >> by2) |+| (wide >> by3);
        sum = sum |+| (wide >> by4) |+| (wide >> by5) |+| (wide >> by6) |+| (wide >> by7);
    }

    table division {
        key = { divisor: exact; }
        actions = { add_shifts; NoAction; }
        default_action = NoAction();
        size = 1025;
    }

    table division_log {
        key = { divisor: lpm; }
        actions = { add_shifts; NoAction; }
        default_action = NoAction();
        size = 640;
    }

    apply {
        wide = dividend[31:32 - GUARD] == 0 ? dividend << GUARD : WORD_MAX;
        sum = 0;
        if (!division.apply().hit) {
            division_log.apply();
        }
        quotient = sum >> GUARD;
    }
}

control Allocate(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    // Bytes that are not scheduled, and bytes that are, of each port.
    register<bit<32>>(2 * PORTS) loads;
    BloomFilter() filter_a;
    BloomFilter() filter_b;
    // Which filter's count counts, and C(t). The control program writes both.
    register<bit<1>>(PORTS) active;
    register<bit<32>>(PORTS) available_of;
    // The critical transfer; of the last rank if there is none.
    register<bit<64>>(PORTS) critical_transfer;
    register<bit<24>>(PORTS) critical_rank;
    register<bit<32>>(PORTS) critical_rate;
    register<bit<64>>(PORTS) critical_heard;
    // Offer that is kept for the transfer that goes first: rate in bit/s, until when in nanoseconds.
    register<bit<1>>(PORTS) reservation_held;
    register<bit<64>>(PORTS) reservation_transfer;
    register<bit<24>>(PORTS) reservation_rank;
    register<bit<64>>(PORTS) reservation_rate;
    register<bit<64>>(PORTS) reservation_until;
    HashUnit() hash_unit;
    Division() shared;

    bit<64> now;
    port_t port;

    action configure(bit<64> key0, bit<64> key1, bit<32> mask, bit<32> line, bit<5> unit, bit<64> settling) {
        port = { key0, key1, mask, line, unit, settling };
    }

    action leave_alone() {
        port = { 0, 0, 0, 0, 0, 0 };
    }

    table ports {
        key = { standard.egress_port: exact; }
        actions = { configure; leave_alone; }
        default_action = leave_alone();
        size = PORTS;
    }

    // The switch tells microseconds; a thousand is 1,024 - 16 - 8.
    action clock_of_switch() {
        bit<64> micros = (bit<64>)standard.egress_global_timestamp;
        now = (micros << 10) - (micros << 4) - (micros << 3);
    }

    // For vectors, which state their times.
    action clock_at(bit<64> nanos) {
        now = nanos;
    }

    table clock {
        actions = { clock_of_switch; clock_at; }
        default_action = clock_of_switch();
    }

    // The offer and one byte before it are two words of the checksum (RFC 1624). UDP without a checksum stays so.
    action write_offer(bit<24> offer) {
        bit<32> sum = (bit<32>)~hdr.udp.checksum;
        sum = sum + (bit<32>)~(hdr.scheduling.rate[7:0] ++ hdr.scheduling.offer[23:16]) + (bit<32>)~hdr.scheduling.offer[15:0];
        sum = sum + (bit<32>)(hdr.scheduling.rate[7:0] ++ offer[23:16]) + (bit<32>)offer[15:0];
        sum = (bit<32>)sum[15:0] + (bit<32>)sum[31:16];
        sum = (bit<32>)sum[15:0] + (bit<32>)sum[31:16];
        bit<16> checksum = ~sum[15:0] == 0 ? 0xffff : ~sum[15:0];
        hdr.udp.checksum = hdr.udp.checksum == 0 ? 0 : checksum;
        hdr.scheduling.offer = offer;
    }

    apply {
        if (ports.apply().hit) {
            bit<32> at = (bit<32>)standard.egress_port;
            bool is_claim = hdr.scheduling.isValid() && hdr.scheduling.kind <= FIN;
            bit<32> load;
            bit<32> load_at = (bit<32>)(standard.egress_port ++ (is_claim ? 1w1 : 0));
            loads.read(load, load_at);
            loads.write(load_at, load |+| standard.packet_length);

            if (is_claim) {
                bit<32> granted = port.line;
                claim_t claim;
                claim.kind = hdr.scheduling.kind;
                claim.rank = hdr.scheduling.rank;
                claim.transfer = hdr.datagram.transfer;
                claim.rate = (bit<64>)hdr.scheduling.rate << hdr.scheduling.unit;
                claim.offer = (bit<64>)hdr.scheduling.offer << hdr.scheduling.unit;

                // What a claim is granted (lines 9-17), in units.
                if (claim.kind != LAST) {
                    clock.apply();
                    bool is_data = claim.kind == DATA;
                    bit<32> cell0;
                    bit<32> cell1;
                    bit<32> cell2;
                    bit<32> in_a;
                    bit<32> in_b;
                    bit<1> counts_b;
                    hash_unit.apply(port, claim.transfer, cell0, cell1, cell2);
                    filter_a.apply(at, is_data, cell0, cell1, cell2, in_a);
                    filter_b.apply(at, is_data, cell0, cell1, cell2, in_b);
                    active.read(counts_b, at);
                    bit<32> transfers = counts_b == 1 ? in_b : in_a;

                    // The critical transfer.
                    bit<64> first;
                    bit<24> rank;
                    critical_transfer.read(first, at);
                    critical_rank.read(rank, at);
                    bool own = rank != LAST_RANK && first == claim.transfer;
                    bool cleared = own && (!is_data || claim.rank == LAST_RANK);
                    rank = cleared ? LAST_RANK : rank;
                    first = cleared ? 0 : first;
                    bool ahead = (own && !cleared) || claim.rank < rank;
                    bool is_critical = ahead && is_data;
                    bit<32> others = rank != LAST_RANK ? 32w1 : 0;
                    critical_transfer.write(at, is_critical ? claim.transfer : first);
                    critical_rank.write(at, is_critical ? claim.rank : rank);

                    bit<32> taken;
                    bit<64> heard;
                    bit<32> available;
                    critical_rate.read(taken, at);
                    taken = cleared ? 0 : taken;
                    taken = is_critical ? count_of(claim.rate, port.unit) : taken;
                    critical_rate.write(at, taken);
                    critical_heard.read(heard, at);
                    critical_heard.write(at, is_critical ? now : heard);
                    available_of.read(available, at);

                    // The reservation: a probe's offer is kept from those behind it; anything else of its holder ends it.
                    bool is_probe = claim.kind == PROBE;
                    bit<1> held;
                    bit<64> holder;
                    bit<24> reserved_rank;
                    bit<64> reserved;
                    bit<64> until;
                    reservation_held.read(held, at);
                    reservation_transfer.read(holder, at);
                    reservation_rank.read(reserved_rank, at);
                    reservation_rate.read(reserved, at);
                    reservation_until.read(until, at);
                    bool holds = held == 1 && holder == claim.transfer;
                    bool leaves = is_probe && held == 1 && !holds && now < until && reserved_rank <= claim.rank;
                    bool reserves = is_probe && !leaves && ahead && !holds && port.settling != 0;
                    bit<32> left = leaves ? count_of(reserved, port.unit) : 0;
                    bit<64> most = (bit<64>)(available < port.line ? available : port.line) << port.unit;
                    held = !is_probe && holds ? 0 : held;
                    reservation_held.write(at, reserves ? 1 : held);
                    reservation_transfer.write(at, reserves ? claim.transfer : holder);
                    reservation_rank.write(at, reserves ? claim.rank : reserved_rank);
                    reservation_rate.write(at, reserves ? least(claim.offer, most) : reserved);
                    reservation_until.write(at, reserves ? now + port.settling : until);

                    if (claim.kind == FIN) {
                        granted = port.line;
                    } else if (is_critical || (ahead && !leaves)) {
                        granted = available;
                    } else {
                        taken = left > taken ? left : taken;
                        bit<32> asking = is_data ? 32w0 : 1;
                        shared.apply(available |-| taken, (transfers |-| others) |+| asking, granted);
                    }
                }

                granted = granted < port.line ? granted : port.line;
                bit<64> allowed = least(claim.offer, (bit<64>)granted << port.unit);
                bit<24> offer = count_of(allowed, hdr.scheduling.unit)[23:0];
                if (offer < hdr.scheduling.offer) {
                    write_offer(offer);
                }
            }
        }
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

// The one checksum that changes is mended where the offer is lowered: the payload is not read.
control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(Parse(), Verify(), Forward(), Allocate(), Update(), Deparse()) main;
