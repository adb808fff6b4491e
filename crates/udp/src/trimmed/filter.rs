//! The same question as [`super::packet::read`] answers, asked by the kernel of every packet: classic BPF.
//!
//! A load beyond the packet's end ends the program with "no". Bytes count from the IP header, since the socket is one without
//! link headers.

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
    BPF_LDX, BPF_MEM, BPF_MSH, BPF_RET, BPF_ST, BPF_SUB, BPF_X, SKF_AD_OFF, SKF_AD_PKTTYPE,
};
use socket2::SockFilter;

use super::packet::{Family, Wanted};

/// The packet type, which is beside the packet.
const PACKET_TYPE: u32 = (SKF_AD_OFF + SKF_AD_PKTTYPE).cast_unsigned();
const UDP: u32 = 17;

/// Accepts `snap` bytes of what is wanted, and nothing of the rest.
pub(super) fn program(family: Family, wanted: &Wanted, snap: usize) -> Vec<SockFilter> {
    let mut code = Vec::new();
    // A socket that listens to everything also sees packets for other hosts.
    code.extend([load(BPF_B | BPF_ABS, PACKET_TYPE), Step::NoIf(BPF_JEQ, u32::from(libc::PACKET_OTHERHOST))]);
    let dscp = u32::from(wanted.dscp);
    match family {
        Family::V4 => code.extend([
            load(BPF_H | BPF_ABS, 0),
            // Version and DSCP, whatever the header's length and the ECN bits.
            Step::Do(BPF_ALU | BPF_AND | BPF_K, 0xf0fc),
            Step::NoUnless(BPF_JEQ, 0x4000 | dscp << 2),
            load(BPF_B | BPF_ABS, 9),
            Step::NoUnless(BPF_JEQ, UDP),
            load(BPF_H | BPF_ABS, 6),
            Step::NoIf(BPF_JSET, 0x3fff),
            // Four times the low four bits of byte 0, and the length behind them.
            Step::Do(BPF_LDX | BPF_B | BPF_MSH, 0),
            load(BPF_H | BPF_ABS, 2),
            Step::Do(BPF_ALU | BPF_SUB | BPF_X, 0),
        ]),
        Family::V6 => code.extend([
            load(BPF_H | BPF_ABS, 0),
            Step::Do(BPF_ALU | BPF_AND | BPF_K, 0xffc0),
            Step::NoUnless(BPF_JEQ, 0x6000 | dscp << 6),
            load(BPF_B | BPF_ABS, 6),
            Step::NoUnless(BPF_JEQ, UDP),
            Step::Do(BPF_LDX | BPF_IMM, 40),
            load(BPF_H | BPF_ABS, 4),
        ]),
    }
    code.extend([Step::Do(BPF_ST, 0), load(BPF_H | BPF_IND, 2), Step::AnyOf]);
    // The UDP length against what IP says.
    code.extend([
        load(BPF_H | BPF_IND, 4),
        Step::Do(BPF_LDX | BPF_MEM, 0),
        Step::NoIf(BPF_JEQ | BPF_X, 0),
        Step::Do(BPF_RET | BPF_K, snap as u32),
    ]);
    assemble(&code, wanted)
}

/// One instruction, or a few.
#[derive(Clone, Copy)]
enum Step {
    Do(u32, u32),
    /// Ends with "no" if the accumulator compares so.
    NoIf(u32, u32),
    NoUnless(u32, u32),
    /// Ends with "no" unless the accumulator is one of the ports.
    AnyOf,
}

fn load(how: u32, at: u32) -> Step {
    Step::Do(BPF_LD | how, at)
}

/// "No" is the last instruction.
fn assemble(steps: &[Step], wanted: &Wanted) -> Vec<SockFilter> {
    let ports = wanted.ports.len();
    let len = |step: &Step| if matches!(step, Step::AnyOf) { ports + 1 } else { 1 };
    let no: usize = steps.iter().map(len).sum();
    let mut program = Vec::with_capacity(no + 1);
    let instruction = |code: u32, yes: usize, otherwise: usize, k: u32| {
        let jump = |by: usize| u8::try_from(by).expect("a program is shorter than its longest jump");
        SockFilter::new(code as u16, jump(yes), jump(otherwise), k)
    };
    for step in steps {
        // Jumps count from the instruction behind their own.
        let to_no = no - program.len() - 1;
        match *step {
            Step::Do(code, k) => program.push(instruction(code, 0, 0, k)),
            Step::NoIf(test, k) => program.push(instruction(BPF_JMP | test, to_no, 0, k)),
            Step::NoUnless(test, k) => program.push(instruction(BPF_JMP | test, 0, to_no, k)),
            Step::AnyOf => {
                for (nth, port) in wanted.ports.iter().enumerate() {
                    program.push(instruction(BPF_JMP | BPF_JEQ, ports - nth, 0, (*port).into()));
                }
                program.push(SockFilter::new(
                    (BPF_JMP | libc::BPF_JA) as u16,
                    0,
                    0,
                    (no - program.len() - 1) as u32,
                ));
            }
        }
    }
    debug_assert_eq!(program.len(), no, "steps are as long as was said");
    program.push(instruction(BPF_RET | BPF_K, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixDatagram;

    use proptest::prelude::*;
    use socket2::SockRef;

    use super::super::packet::read;
    use super::super::packet::tests::{cut, wanted};
    use super::*;

    const SNAP: usize = 64;

    /// The kernel as a judge, to which any datagram is a packet: a socket pair needs no privilege.
    struct Kernel(UnixDatagram, UnixDatagram);

    impl Kernel {
        fn new(family: Family, wanted: &Wanted) -> Kernel {
            let (sender, receiver) = UnixDatagram::pair().unwrap();
            SockRef::from(&receiver).attach_filter(&program(family, wanted, SNAP)).unwrap();
            receiver.set_nonblocking(true).unwrap();
            Kernel(sender, receiver)
        }

        /// How much of it the filter lets pass.
        fn takes(&self, packet: &[u8]) -> Option<usize> {
            match self.0.send(packet) {
                // A datagram that the filter refuses is refused to the sender too.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
                sent => sent.unwrap(),
            };
            match self.1.recv(&mut [0; 2048]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                taken => Some(taken.unwrap()),
            }
        }
    }

    fn families() -> impl Strategy<Value = Family> {
        prop_oneof![Just(Family::V4), Just(Family::V6)]
    }

    #[test]
    fn a_trimmed_packet_passes_to_any_of_many_ports_and_is_cut() {
        let many: Vec<u16> = (8960..9001).collect();
        for family in [Family::V4, Family::V6] {
            let packet = cut(family, 51 << 2 | 3, 114);
            assert_eq!(Kernel::new(family, &wanted(&many)).takes(&packet), Some(SNAP));
            assert_eq!(Kernel::new(family, &wanted(&[9000])).takes(&packet), Some(SNAP));
            assert_eq!(Kernel::new(family, &wanted(&many[..40])).takes(&packet), None);
            assert_eq!(Kernel::new(family, &wanted(&[])).takes(&packet), None);
        }
    }

    proptest! {
        /// Both answers, on packets with anything changed in their headers.
        #[test]
        fn the_kernel_and_the_reader_agree(
            family in families(),
            keep in 60_usize..200,
            changes in proptest::collection::vec((0_usize..56, any::<u8>()), 0..3),
            port in prop_oneof![Just(9000_u16), Just(7)],
        ) {
            let wanted = wanted(&[1, port, 2]);
            let mut packet = cut(family, 51 << 2 | 2, keep);
            for (at, value) in changes {
                packet[at] = value;
            }
            let (kernel, reader) = (Kernel::new(family, &wanted).takes(&packet), read(family, &packet, &wanted));
            // The kernel's program does not ask whether lengths are possible.
            let header = if family == Family::V4 { usize::from(packet[0] & 15) * 4 } else { 40 };
            let end = match family {
                Family::V4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
                Family::V6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
            };
            let possible = header >= 20 && end >= header + 8 && header + 8 <= packet.len();
            prop_assert!(reader.is_none() || kernel.is_some(), "{:?}", packet);
            if possible {
                prop_assert_eq!(kernel.is_some(), reader.is_some(), "{:?}", packet);
            }
        }
    }
}
