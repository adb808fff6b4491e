//! Where switches keep what passes on trees: how a frame goes through their content stores.

use headwater_switch::{Frame, PortIndex, StoreConfig};
use headwater_units::Time;

use super::super::address::AddressBook;
use super::super::frame::RawFrame;
use super::super::tree_stores::TreeStores;
use super::{EmulatedFabric, Tap};

/// Content stores, and how a frame goes through one.
#[derive(Clone, Debug)]
pub(super) struct Keeping<F> {
    stores: TreeStores<F>,
    pass: fn(&mut TreeStores<F>, usize, F, &mut Vec<F>) -> Option<F>,
    /// Empty but for its room.
    out: Vec<F>,
}

impl<T: Tap<RawFrame>> EmulatedFabric<RawFrame, T> {
    /// From now on switches keep what passes on trees of Datacast, answer from it, and copy what several wait for; hosts have the
    /// addresses of this book.
    pub(in super::super) fn keep_trees(&mut self, config: StoreConfig, book: AddressBook) {
        let stores = TreeStores::new(config, book);
        self.keeping = Some(Keeping { stores, pass: TreeStores::pass, out: Vec::new() });
    }
}

impl<F: Frame, T: Tap<F>> EmulatedFabric<F, T> {
    /// A frame has come to a switch over a link, by this port.
    pub(super) fn enter_switch(
        &mut self,
        at: Time,
        index: usize,
        (link, ingress): (u32, PortIndex),
        frame: F,
    ) {
        let Some(mut keeping) = self.keeping.take() else {
            return self.switch_takes(at, index, (link, ingress), frame);
        };
        let came = frame.len().get();
        match (keeping.pass)(&mut keeping.stores, index, frame, &mut keeping.out) {
            Some(frame) => self.switch_takes(at, index, (link, ingress), frame),
            // The frame that came ends here, and the one that goes on begins here, were it the same.
            None => self.counts.gathered.add(1, came),
        }
        for frame in keeping.out.drain(..) {
            self.counts.copied.note(&frame);
            // The device itself sends it: it may go back where the question came from.
            self.switch_takes(at, index, (link, PortIndex::OWN), frame);
        }
        self.keeping = Some(keeping);
    }
}
