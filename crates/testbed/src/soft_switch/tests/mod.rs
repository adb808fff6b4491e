mod any_frames;
mod bytes;
mod oracle;
mod veth;

use super::{AddressBook, FramePool, NotForwarded, RawFrame};

fn parse(bytes: &[u8], book: &AddressBook) -> Result<RawFrame, NotForwarded> {
    RawFrame::parse(FramePool::new(4).gather(&[bytes]).unwrap(), book)
}
