//! Mutual TLS 1.3 in which a key is a name.
//!
//! Nobody signs certificates here. A certificate must be well-formed, its key must sign the handshake (checked by the
//! crypto provider's own algorithms), and on the dialling side the key must be the expected one. Resumption is off, so
//! every connection goes through these checks.

use std::sync::{Arc, OnceLock};

use headwater_units::NodeId;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
};

use super::identity::{Identity, node_of};

/// The protocol of control links; a change that old nodes would misread gets a new number.
pub(super) const ALPN: &str = "headwater/2";

/// The configuration of one dial; `verifier` decides about the peer's key and remembers it.
pub(super) fn client(
    identity: &Identity,
    verifier: Arc<PeerKey>,
    alpn: &str,
) -> Result<rustls::ClientConfig, Error> {
    let mut config = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![identity.certificate()], identity.key())?;
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The configuration of the accepting side: any key is a name, but there must be one.
pub(super) fn server(identity: &Identity, alpn: &str) -> Result<rustls::ServerConfig, Error> {
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(PeerKey::any()))
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Checks a peer's certificate and key.
#[derive(Debug)]
pub(super) struct PeerKey {
    provider: Arc<CryptoProvider>,
    expected: Option<NodeId>,
    /// The key that was presented (not yet proven), for the error message.
    presented: OnceLock<NodeId>,
}

impl PeerKey {
    /// Any key; who accepts it says what it means.
    pub(super) fn any() -> Self {
        PeerKey { provider: provider(), expected: None, presented: OnceLock::new() }
    }

    /// Only this key.
    pub(super) fn exactly(node: NodeId) -> Self {
        PeerKey { expected: Some(node), ..Self::any() }
    }

    /// The expected and the presented key, if they differ.
    pub(super) fn mismatch(&self) -> Option<(NodeId, NodeId)> {
        let (expected, presented) = (self.expected?, *self.presented.get()?);
        (expected != presented).then_some((expected, presented))
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let node = node_of(certificate)?;
        if let Some(expected) = self.expected {
            let _ = self.presented.set(node);
            if node != expected {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(())
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }
}

/// Signature schemes: the one of our identities, and P-256 for those that other tools may bring one day.
fn schemes() -> Vec<SignatureScheme> {
    vec![SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]
}

impl ServerCertVerifier for PeerKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

impl ClientCertVerifier for PeerKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_key_passes_and_rubbish_never_does() {
        let (one, two) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
        let check =
            |verifier: &PeerKey, certificate: &CertificateDer<'_>| verifier.check(certificate).is_ok();
        let exact = PeerKey::exactly(one.node());
        assert!(check(&exact, &one.certificate()) && exact.mismatch().is_none());
        let exact = PeerKey::exactly(one.node());
        assert!(!check(&exact, &two.certificate()));
        assert_eq!(exact.mismatch(), Some((one.node(), two.node())));
        assert!(check(&PeerKey::any(), &two.certificate()));
        assert!(!check(&PeerKey::any(), &CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])));
    }
}
