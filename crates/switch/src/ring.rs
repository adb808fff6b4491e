//! First in, first out, in a ring that grows: a `VecDeque` whose two verbs are short enough to be inlined where every packet
//! comes by.

/// The smallest ring that is ever allocated, in slots.
const FIRST_SLOTS: usize = 4;

/// Frames in order.
#[derive(Clone, Debug)]
pub(crate) struct Ring<F> {
    /// A power of two of them, or none at first.
    slots: Box<[Option<F>]>,
    /// Numbers of the first frame and of the next one to come, counted from the beginning; they wrap.
    first: u32,
    next: u32,
}

impl<F> Ring<F> {
    pub(crate) fn new() -> Self {
        Ring { slots: Box::default(), first: 0, next: 0 }
    }
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == self.next
    }
    /// Puts a frame behind all others.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: F) {
        if self.next.wrapping_sub(self.first) as usize == self.slots.len() {
            self.grow();
        }
        let place = self.place(self.next);
        self.slots[place] = Some(frame);
        self.next = self.next.wrapping_add(1);
    }
    /// Takes the first frame out.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<F> {
        let place = self.place(self.first);
        let frame = self.slots.get_mut(place)?.take()?;
        self.first = self.first.wrapping_add(1);
        Some(frame)
    }

    #[inline(always)]
    fn place(&self, number: u32) -> usize {
        number as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(FIRST_SLOTS);
        assert!(size <= 1 << 31, "a queue has fewer than 2^31 frames");
        let mut slots: Box<[Option<F>]> = std::iter::repeat_with(|| None).take(size).collect();
        let mut number = self.first;
        while number != self.next {
            slots[number as usize & (size - 1)] = self.slots[self.place(number)].take();
            number = number.wrapping_add(1);
        }
        self.slots = slots;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ring_is_a_queue_also_where_its_numbers_wrap(
            start: bool, steps in prop::collection::vec((any::<bool>(), 1usize..20), 1..200),
        ) {
            let first = if start { 0 } else { u32::MAX - 50 };
            let (mut ring, mut queue) = (Ring { first, next: first, ..Ring::new() }, VecDeque::new());
            let mut count = 0;
            for (push, times) in steps {
                for _ in 0..times {
                    if push {
                        count += 1;
                        ring.push(count);
                        queue.push_back(count);
                    } else {
                        prop_assert_eq!(ring.pop(), queue.pop_front());
                    }
                    prop_assert_eq!(ring.is_empty(), queue.is_empty());
                }
            }
        }
    }
}
