//! Stateless resets (RFC 9000 §10.3): a node that has restarted tells peers that still speak to its earlier process at
//! once that the connection is gone, instead of letting them wait for the idle timeout.
//!
//! For that the keys of connection ids and reset tokens must be the same after a restart. They follow from the node's key and its port:
//! of two processes under one key none can be made to reveal the tokens of the other (RFC 9000 §21.11).

use std::sync::Arc;

use quinn::EndpointConfig;
use quinn::crypto::{CryptoError, HmacKey};

use super::identity::Identity;

const CONTEXT: &str = "headwater 2026-11-24 stateless resets of the control plane";

/// Settings of an endpoint at `port` whose resets its peers believe after a restart.
pub(super) fn endpoint_config(identity: &Identity, port: u16) -> EndpointConfig {
    let mut secret = blake3::Hasher::new_derive_key(CONTEXT);
    secret.update(identity.key().secret_der()).update(&port.to_be_bytes());
    let mut keys = secret.finalize_xof();
    let (mut reset_key, mut id_key) = ([0; blake3::KEY_LEN], [0; 8]);
    keys.fill(&mut reset_key);
    keys.fill(&mut id_key);
    let mut config = EndpointConfig::new(Arc::new(ResetKey(reset_key)));
    let id_key = u64::from_be_bytes(id_key);
    config.cid_generator(move || Box::new(quinn_proto::HashedConnectionIdGenerator::from_key(id_key)));
    // A packet whose fixed bit is random (RFC 9287) may begin like a datagram of ours, which a switch on the way would take for a transfer
    // of any rank and rate.
    config.grease_quic_bit(false);
    config
}

/// Makes reset tokens: BLAKE3, keyed.
struct ResetKey([u8; blake3::KEY_LEN]);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(blake3::keyed_hash(&self.0, data).as_bytes());
    }

    fn signature_len(&self) -> usize {
        blake3::OUT_LEN
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let right = blake3::keyed_hash(&self.0, data);
        // Compares in constant time.
        match <[u8; blake3::OUT_LEN]>::try_from(signature).is_ok_and(|given| right == given) {
            true => Ok(()),
            false => Err(CryptoError),
        }
    }
}
