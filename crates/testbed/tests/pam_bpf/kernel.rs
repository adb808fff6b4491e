//! The program in the kernel: compiled, looked at, loaded, and run on single frames (BPF_PROG_TEST_RUN).

use std::path::Path;
use std::process::Command;

use aya::maps::{Array, MapData};
use aya::programs::{SchedClassifier, TestRun as _};
use aya::{Ebpf, EbpfLoader, Pod, TestRunOptions};
use headwater_switch::HardwareTables;
use headwater_units::Time;
use object::{Object as _, ObjectSection as _};

use super::vectors::{Place, Write};

/// Compilers that are tried.
const COMPILERS: [&str; 3] = ["clang", "clang-14", "clang-19"];
/// The section of the program.
const SECTION: &str = "classifier";
/// Size of `struct __sk_buff`, and where its time stamp is.
const CONTEXT: usize = 192;
const TIME_STAMP: usize = 152;

/// The object file; `None` where there is no compiler.
pub(crate) fn compiled(source: &Path) -> Option<Vec<u8>> {
    let is_there =
        |it: &&&str| Command::new(**it).arg("--version").output().is_ok_and(|it| it.status.success());
    let Some(compiler) = COMPILERS.iter().find(is_there) else {
        headwater_skips::cannot("no clang here");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("pam.o");
    // The last four keep the order of the source, in which nothing goes back.
    let made = Command::new(compiler)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .args(["-mllvm", "-disable-block-placement", "-mllvm", "-enable-tail-merge=0"])
        .args(["-mllvm", "-disable-branch-fold", "-mllvm", "-disable-early-taildup"])
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(std::fs::read(object).unwrap())
}

/// The program's instructions, eight bytes each: operation, registers, offset, constant.
pub(crate) fn instructions(object: &[u8]) -> Vec<[u8; 8]> {
    let file = object::File::parse(object).unwrap();
    let section = file.section_by_name(SECTION).unwrap();
    section.data().unwrap().chunks_exact(8).map(|it| it.try_into().unwrap()).collect()
}

/// The loaded program with its maps.
pub(crate) struct Kernel {
    program: Ebpf,
    tables: HardwareTables,
}

impl Kernel {
    /// Loads it for a port.
    pub(crate) fn load(object: &[u8], tables: &HardwareTables) -> Result<Kernel, String> {
        let mut loader = EbpfLoader::new();
        for array in ["filter_a0", "filter_a1", "filter_a2", "filter_b0", "filter_b1", "filter_b2"] {
            loader.map_max_entries(array, tables.filter_cells / 64);
        }
        // Where BPF is not allowed, the first map cannot be made.
        let program = loader.load(object).map_err(|error| format!("no BPF here: {error}"))?;
        let mut kernel = Kernel { program, tables: tables.clone() };
        let classifier: &mut SchedClassifier = kernel.program.program_mut("pam").unwrap().try_into().unwrap();
        classifier.load().unwrap_or_else(|error| panic!("the verifier refuses it: {error:?}"));
        for (array, entries) in [("division", &tables.division), ("division_log", &tables.division_log)] {
            for (at, shifts) in entries.iter().enumerate() {
                kernel.array::<[u8; 8]>(array).set(at as u32, shifts, 0).unwrap();
            }
        }
        Ok(kernel)
    }

    /// Sends a frame through it at a time; returns the frame as it leaves.
    pub(crate) fn run(&mut self, at: Time, frame: &[u8]) -> Vec<u8> {
        let mut context = [0; CONTEXT];
        context[TIME_STAMP..TIME_STAMP + 8].copy_from_slice(&at.as_nanos().to_ne_bytes());
        let mut out = vec![0; frame.len() + 64];
        let classifier: &mut SchedClassifier = self.program.program_mut("pam").unwrap().try_into().unwrap();
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            ..TestRunOptions::default()
        };
        let done = classifier.test_run(options).unwrap();
        assert_eq!(done.return_value, 0, "every frame passes");
        let len = done.data_size_out as usize;
        out.truncate(len);
        out
    }

    pub(crate) fn write(&mut self, writes: &[Write]) {
        for Write { array, at, value } in writes {
            let word = |field: usize| u32::try_from(value[field]).unwrap();
            match array.as_str() {
                "active" => {
                    let (tables, active) = (&self.tables, word(0));
                    let mut port = [0; 40];
                    port[..8].copy_from_slice(&tables.hash_key[0].to_ne_bytes());
                    port[8..16].copy_from_slice(&tables.hash_key[1].to_ne_bytes());
                    port[16..24].copy_from_slice(&tables.settling.as_nanos().to_ne_bytes());
                    let words = [tables.filter_cells - 1, tables.line, tables.unit.into(), active];
                    for (at, word) in words.into_iter().enumerate() {
                        port[24 + 4 * at..28 + 4 * at].copy_from_slice(&word.to_ne_bytes());
                    }
                    self.array::<[u8; 40]>("port_of").set(0, port, 0).unwrap();
                }
                "critical_of" => {
                    self.array::<[u64; 2]>(array).set(*at, [value[0], value[1]], 0).unwrap();
                }
                "reservation_of" => {
                    let last = value[3] | value[4] << 32;
                    self.array::<[u64; 4]>(array).set(*at, [value[0], value[1], value[2], last], 0).unwrap();
                }
                "critical_heard" => self.array::<u64>(array).set(*at, value[0], 0).unwrap(),
                filter if filter.starts_with("filter") => {
                    self.array::<u64>(filter).set(*at, value[0], 0).unwrap()
                }
                _ => self.array::<u32>(array).set(*at, word(0), 0).unwrap(),
            }
        }
    }

    /// The fields of a register, as vectors have them.
    pub(crate) fn read(&mut self, (array, at): &Place) -> Vec<u64> {
        match array.as_str() {
            "active" => {
                let port: [u8; 40] = self.array("port_of").get(&0, 0).unwrap();
                vec![u32::from_ne_bytes(port[36..].try_into().unwrap()).into()]
            }
            "critical_of" => {
                let [transfer, rank] = self.array::<[u64; 2]>(array).get(at, 0).unwrap();
                vec![transfer, rank & 0xffff_ffff]
            }
            "reservation_of" => {
                let [transfer, rate, until, last] = self.array::<[u64; 4]>(array).get(at, 0).unwrap();
                match last >> 32 {
                    // A reservation that is not held any more is nothing.
                    0 => vec![0; 5],
                    held => vec![transfer, rate, until, last & 0xffff_ffff, held],
                }
            }
            "critical_heard" => vec![self.array::<u64>(array).get(at, 0).unwrap()],
            filter if filter.starts_with("filter") => vec![self.array::<u64>(filter).get(at, 0).unwrap()],
            _ => vec![self.array::<u32>(array).get(at, 0).unwrap().into()],
        }
    }

    fn array<T: Pod>(&mut self, name: &str) -> Array<&mut MapData, T> {
        self.program.map_mut(name).unwrap().try_into().unwrap()
    }
}
