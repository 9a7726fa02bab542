//! Packets: the binary protocol.
//!
//! A packet is checked by its header before anything after that is awaited; one whose lengths contradict one another ends
//! the connection, as it is unknown where the next one begins. It knows no lines.

use super::{COLLECT_MIN, Collect, Doing, Session, Step};
use crate::memcached::command::binary::{self as packet, After};
use crate::memcached::command::gets;
use crate::memcached::protocol::binary::{self, HEADER_LEN, Header, Status};
use crate::memcached::protocol::text;

impl Session {
    /// Takes the packets at the front of `rest`.
    pub(super) fn packets(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        let Some(header) = Header::decode(rest) else {
            return match rest.first() {
                Some(&binary::REQUEST) => Step::More(HEADER_LEN - rest.len()),
                _ => Step::Close(0),
            };
        };
        let front = header.front_len();
        let Some(len) = header.value_len() else {
            binary::refuse(output, &header, Status::Unknown);
            return Step::Close(HEADER_LEN);
        };
        if header.is_too_long() {
            binary::refuse(output, &header, Status::Invalid);
            return Step::Close(HEADER_LEN);
        }
        if !self.is_admitted && !header.is_open_to_all() {
            binary::refuse(output, &header, Status::NotAdmitted);
            return Step::Close(HEADER_LEN);
        }
        if header.is_read() {
            let consumed = gets::packets(&mut self.executor, rest, output);
            if consumed > 0 {
                return Step::On(consumed);
            }
        }
        if !header.is_known(self.executor.service.has_passwords()) {
            binary::refuse(output, &header, Status::Unknown);
            self.doing = Doing::Discard(header.body_len as u64);
            return Step::On(HEADER_LEN);
        }
        if header.key_len > text::KEY_LEN_MAX {
            binary::refuse(output, &header, Status::Invalid);
            return Step::Close(HEADER_LEN);
        }
        let is_long = len > COLLECT_MIN && !header.stores();
        if !header.is_sound() || is_long {
            binary::refuse(output, &header, Status::Invalid);
            return Step::Close(HEADER_LEN);
        }
        let Some(packet) = rest.get(..front) else {
            return Step::More(front - rest.len());
        };
        if header.stores() && packet::refuse_too_large(&mut self.executor, &header, packet, output)
        {
            self.doing = Doing::Discard(len as u64);
            return Step::On(front);
        }
        if let Some(value) = rest.get(front..front + len) {
            return if self.packet(packet, value, output) {
                Step::On(front + len)
            } else {
                Step::Close(front + len)
            };
        }
        if len <= COLLECT_MIN {
            self.awaits_data = true;
            return Step::More(front + len - rest.len());
        }
        self.doing = Doing::Collect(Box::new(Collect {
            line: packet.to_vec(),
            data: Vec::new(),
            left: len,
        }));
        Step::On(front)
    }

    /// Executes a packet that is whole; whether the connection stays.
    pub(super) fn packet(&mut self, packet: &[u8], value: &[u8], output: &mut Vec<u8>) -> bool {
        let Some(header) = Header::decode(packet) else {
            return false;
        };
        match packet::execute(&mut self.executor, &header, packet, value, output) {
            After::On => true,
            After::Close => false,
            After::Admit => {
                let found = packet::credentials(&header, packet, value);
                let is_admitted =
                    found.is_some_and(|(user, password)| self.try_admit(user, password));
                packet::admitted(&header, is_admitted, output);
                true
            }
        }
    }
}
