//! A node's key and the certificate that carries it.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use headwater_units::NodeId;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;

use super::error::ControlError;
use super::files;

const FILE: &str = "node.pem";
/// TLS wants a name; it plays no role.
pub(super) const SERVER_NAME: &str = "headwater";

/// The node whose key `certificate` carries.
///
/// # Errors
/// A certificate error if it is malformed.
pub(super) fn node_of(certificate: &CertificateDer<'_>) -> Result<NodeId, rustls::Error> {
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    Ok(NodeId(*blake3::hash(&key).as_bytes()))
}

/// The key that makes this node who it is (Ed25519), with a self-signed certificate around it.
///
/// Kept in `STATE/identity/node.pem`. Nobody checks the certificate's names or dates: the key is the identity.
pub struct Identity {
    node: NodeId,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// The identity kept under `state`, made now if there is none. Processes that start at once agree on one.
    ///
    /// # Errors
    /// [`ControlError::NoRoom`]; [`ControlError::State`] if the file cannot be read, written or understood; a damaged file is never replaced,
    /// because peers would then see another node.
    pub fn load_or_create(state: &Path) -> Result<Identity, ControlError> {
        let dir = files::identity_dir(state)?;
        let path = dir.join(FILE);
        if let Some(text) = files::read(&path)? {
            return Self::load(&path, &text);
        }
        let lock = files::Lock::take(&dir)?;
        if let Some(text) = files::read(&path)? {
            return Self::load(&path, &text);
        }
        let text = new_pem().map_err(|e| files::failed(&path, &e))?;
        files::replace(&lock, &path, text.as_bytes())?;
        Self::load(&path, &text)
    }

    /// An identity that is kept nowhere: for a one-shot command without state, and for tests.
    ///
    /// # Errors
    /// [`ControlError::State`] if the system has no randomness to make a key from.
    pub fn ephemeral() -> Result<Identity, ControlError> {
        let nowhere = Path::new("new identity");
        let text = new_pem().map_err(|e| files::failed(nowhere, &e))?;
        Self::parse(&text).map_err(|e| files::failed(nowhere, &e))
    }

    /// The node's name: the BLAKE3 hash of its public key (SubjectPublicKeyInfo, DER). This is the fingerprint that
    /// people compare.
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    fn load(path: &Path, text: &str) -> Result<Identity, ControlError> {
        if let Ok(metadata) = std::fs::metadata(path)
            && metadata.permissions().mode() & 0o077 != 0
        {
            tracing::warn!(
                "{} can be read by others: whoever reads it can pose as this node; chmod 600 it",
                path.display()
            );
        }
        Self::parse(text).map_err(|e| files::failed(path, &e))
    }

    fn parse(text: &str) -> Result<Identity, String> {
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|e| format!("no certificate in it ({e})"))?;
        let key =
            PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| format!("no key in it ({e})"))?;
        // Says so if key and certificate are not a pair.
        rustls::sign::CertifiedKey::from_der(
            vec![certificate.clone()],
            key.clone_key(),
            &rustls::crypto::ring::default_provider(),
        )
        .map_err(|e| format!("not a usable identity ({e})"))?;
        let node = node_of(&certificate).map_err(|e| format!("not a usable certificate ({e})"))?;
        Ok(Identity { node, certificate, key })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("node", &self.node).finish_non_exhaustive()
    }
}

fn new_pem() -> Result<String, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "headwater node");
    let certificate = params.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_name_over_restarts() {
        let state = tempfile::tempdir().unwrap();
        let first = Identity::load_or_create(state.path()).unwrap();
        let again = Identity::load_or_create(state.path()).unwrap();
        assert_eq!(first.node(), again.node());
        assert_ne!(first.node(), Identity::ephemeral().unwrap().node());
        let mode = |name| std::fs::metadata(state.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("identity"), mode("identity/node.pem")), (0o700, 0o600));
    }

    #[test]
    fn first_starts_at_once_agree_on_one_name() {
        let state = tempfile::tempdir().unwrap();
        let names: Vec<NodeId> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Identity::load_or_create(state.path()).unwrap().node()))
                .collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(names.iter().all(|name| *name == names[0]));
    }

    #[test]
    fn the_name_is_the_hash_of_the_public_key() {
        let text = new_pem().unwrap();
        let public = KeyPair::from_pem(&text).unwrap().public_key_pem();
        let der = rustls::pki_types::SubjectPublicKeyInfoDer::from_pem_slice(public.as_bytes()).unwrap();
        assert_eq!(Identity::parse(&text).unwrap().node(), NodeId(*blake3::hash(&der).as_bytes()));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays_as_it_is() {
        let state = tempfile::tempdir().unwrap();
        Identity::load_or_create(state.path()).unwrap();
        let path = state.path().join("identity/node.pem");
        let mixed = {
            let (mine, other) = (std::fs::read_to_string(&path).unwrap(), new_pem().unwrap());
            let cut = |text: &str| text.find("-----BEGIN CERT").unwrap();
            format!("{}{}", &mine[..cut(&mine)], &other[cut(&other)..])
        };
        for damaged in ["", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", &mixed] {
            std::fs::write(&path, damaged).unwrap();
            let error = Identity::load_or_create(state.path()).unwrap_err().to_string();
            assert!(error.contains("identity/node.pem"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn the_key_does_not_show_itself() {
        let identity = Identity::ephemeral().unwrap();
        assert_eq!(
            format!("{identity:?}"),
            format!("Identity {{ node: NodeId({}..), .. }}", identity.node().short())
        );
    }
}
