//! Frames of both protocols: what is emitted parses to the same, and whatever else comes is an error and no panic.

use headwater_agent::client_frames::{FromAgent, FromProgram, Heard, Index, Range, length};
use headwater_agent::peer_frames::{FromFetcher, FromSource};
use headwater_agent::{Name, Refusal};
use headwater_units::Bytes;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9_/.]{1,255}".prop_map(|text| Name::new(text).unwrap())
}

fn bytes() -> impl Strategy<Value = Bytes> {
    any::<u64>().prop_map(Bytes::new)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop::sample::select(Refusal::ALL)
}

fn index() -> impl Strategy<Value = Index> {
    let range =
        (bytes(), bytes(), any::<u64>()).prop_map(|(offset, length, info)| Range { offset, length, info });
    prop_oneof![
        prop::collection::vec(range, 0..50).prop_map(Index::Ranges),
        ".{0,400}".prop_map(Index::Hadoop),
        ".{0,400}".prop_map(Index::Spark),
    ]
}

fn from_program() -> impl Strategy<Value = FromProgram> {
    prop_oneof![
        (any::<(u8, u8)>(), name(), prop::collection::vec(any::<u8>(), 16..=64)).prop_map(
            |((lowest, highest), application, token)| FromProgram::Hello {
                lowest,
                highest,
                application,
                token
            }
        ),
        (any::<u32>(), name(), ".{0,400}", index()).prop_map(|(request, output, path, index)| {
            FromProgram::Register { request, output, path, index }
        }),
        (any::<u32>(), name()).prop_map(|(request, output)| FromProgram::Unregister { request, output }),
        any::<u32>().prop_map(|request| FromProgram::Drop { request }),
        any::<u32>().prop_map(|request| FromProgram::Status { request }),
        (any::<(u64, u64, u32, u32)>(), name(), name(), bytes()).prop_map(
            |((flow, coflow, first, count), host, output, credit)| FromProgram::Fetch {
                flow,
                coflow,
                host,
                output,
                first,
                count,
                credit
            }
        ),
        (any::<u64>(), bytes()).prop_map(|(flow, bytes)| FromProgram::Credit { flow, bytes }),
        any::<u64>().prop_map(|flow| FromProgram::Cancel { flow }),
    ]
}

fn from_agent() -> impl Strategy<Value = FromAgent> {
    prop_oneof![
        (any::<u8>(), bytes()).prop_map(|(version, block)| FromAgent::Welcome { version, block }),
        any::<u32>().prop_map(|request| FromAgent::Done { request }),
        (any::<u32>(), refusal(), ".{0,300}").prop_map(|(request, refusal, text)| FromAgent::Refused {
            request,
            refusal,
            text
        }),
        (any::<u64>(), bytes(), any::<u64>()).prop_map(|(flow, length, info)| FromAgent::Opened {
            flow,
            length,
            info
        }),
        any::<u64>().prop_map(|flow| FromAgent::End { flow }),
        (any::<u64>(), refusal(), ".{0,300}").prop_map(|(flow, refusal, text)| FromAgent::Broken {
            flow,
            refusal,
            text
        }),
        (any::<u32>(), ".{0,300}").prop_map(|(request, json)| FromAgent::State { request, json }),
    ]
}

fn from_fetcher() -> impl Strategy<Value = FromFetcher> {
    prop_oneof![
        (any::<(u64, u32, u32)>(), name(), any::<[u8; 32]>(), name()).prop_map(
            |((flow, first, count), application, proof, output)| FromFetcher::Open {
                flow,
                application,
                proof,
                output,
                first,
                count
            }
        ),
        (any::<u64>(), bytes(), any::<u32>()).prop_map(|(flow, offset, length)| FromFetcher::Ask {
            flow,
            offset,
            length
        }),
        any::<u64>().prop_map(|flow| FromFetcher::Close { flow }),
    ]
}

fn from_source() -> impl Strategy<Value = FromSource> {
    prop_oneof![
        (any::<(u64, u64, u64)>(), bytes()).prop_map(|((flow, info, stamp), length)| FromSource::Opened {
            flow,
            length,
            info,
            stamp
        }),
        (any::<u64>(), refusal(), ".{0,300}").prop_map(|(flow, refusal, text)| FromSource::Refused {
            flow,
            refusal,
            text
        }),
    ]
}

fn emitted(emit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

proptest! {
    #[test]
    fn what_is_emitted_parses_to_the_same(program in from_program(), agent in from_agent(), fetcher in from_fetcher(), source in from_source()) {
        let bytes = emitted(|out| program.emit(out));
        prop_assert_eq!(length(&bytes, u32::MAX).unwrap(), Some(bytes.len()));
        prop_assert_eq!(FromProgram::parse(&bytes).unwrap(), program);
        let bytes = emitted(|out| agent.emit(out));
        prop_assert_eq!(Heard::parse(&bytes).unwrap(), Heard::Frame(agent));
        prop_assert_eq!(FromFetcher::parse(&emitted(|out| fetcher.emit(out))).unwrap(), fetcher);
        prop_assert_eq!(FromSource::parse(&emitted(|out| source.emit(out))).unwrap(), source);
    }

    #[test]
    fn a_frame_that_is_cut_off_or_goes_on_is_an_error(program in from_program(), cut in any::<prop::sample::Index>(), more in any::<u8>()) {
        let bytes = emitted(|out| program.emit(out));
        let cut = cut.index(bytes.len());
        prop_assert!(FromProgram::parse(&bytes[..cut]).is_err());
        let mut longer = bytes.clone();
        longer.push(more);
        prop_assert!(FromProgram::parse(&longer).is_err());
        // The same with a length that agrees.
        let length = u32::try_from(longer.len() - 4).unwrap();
        longer[..4].copy_from_slice(&length.to_be_bytes());
        let parsed = FromProgram::parse(&longer);
        prop_assert!(parsed.is_err() || emitted(|out| parsed.as_ref().unwrap().emit(out)) == longer);
    }

    #[test]
    fn whatever_comes_is_a_frame_that_says_itself_again_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 5..300), kind in prop_oneof![1..9_u8, 65..73_u8]) {
        let length = u32::try_from(bytes.len() - 4).unwrap();
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4] = kind;
        if let Ok(frame) = FromProgram::parse(&bytes) {
            prop_assert_eq!(emitted(|out| frame.emit(out)), bytes.clone());
        }
        if let Ok(frame) = FromFetcher::parse(&bytes) {
            prop_assert_eq!(emitted(|out| frame.emit(out)), bytes.clone());
        }
        let _ = Heard::parse(&bytes);
        let _ = FromSource::parse(&bytes);
    }
}
