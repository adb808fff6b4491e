//! The identities of nodes for another protocol of ours over TCP: the same keys and checks as for links.

use std::sync::Arc;

use headwater_units::NodeId;
use rustls::pki_types::{CertificateDer, ServerName};

use super::error::ControlError;
use super::identity::{Identity, SERVER_NAME, node_of};
use super::tls::{self, PeerKey};

impl Identity {
    /// The settings of a TLS 1.3 client that shows this identity, accepts only the key of `peer`, and speaks `protocol`.
    ///
    /// # Errors
    /// [`ControlError::State`] if the identity cannot be used.
    pub fn tls_client(
        &self,
        peer: NodeId,
        protocol: &str,
    ) -> Result<Arc<rustls::ClientConfig>, ControlError> {
        let config = tls::client(self, Arc::new(PeerKey::exactly(peer)), protocol);
        Ok(Arc::new(config.map_err(unusable)?))
    }

    /// The settings of a TLS 1.3 server that shows this identity, wants a key of everybody, and speaks `protocol`. Whose key it is, and
    /// whether that one may speak, is asked afterwards ([`peer`]).
    ///
    /// # Errors
    /// [`ControlError::State`] if the identity cannot be used.
    pub fn tls_server(&self, protocol: &str) -> Result<Arc<rustls::ServerConfig>, ControlError> {
        Ok(Arc::new(tls::server(self, protocol).map_err(unusable)?))
    }
}

/// The node whose key a connection has proved.
pub fn peer(certificates: Option<&[CertificateDer<'_>]>) -> Option<NodeId> {
    node_of(certificates?.first()?).ok()
}

/// The name to give to TLS, which wants one; it plays no role.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("it is a name")
}

fn unusable(reason: rustls::Error) -> ControlError {
    ControlError::State { path: "identity".into(), reason: format!("cannot be used for TLS: {reason}") }
}
