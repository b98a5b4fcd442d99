//! Distributed arrays in several processes under Open MPI's `mpirun`: this test program again, with `child` as its only test.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use panoply_mesh::{DArray, Layout, Mesh};
use panoply_nn::ProcessGroup;
use panoply_tensor::{DType, Device, Result, Tensor};

/// The folder in which a rank writes its results.
const CHILD: &str = "PANOPLY_TEST_MESH_FOLDER";

/// Returns the bits of the results as text.
fn bits(values: &[f32]) -> String {
    values.iter().map(|x| format!("{:08x}", x.to_bits())).collect()
}

/// Returns the elements of a product, a sum and a factor.
fn results(mesh: &Mesh) -> Result<Vec<f32>> {
    let layout = Layout::blocks([5, 5]);
    let a = DArray::uniform(mesh, 3, [23, 23], &layout)?;
    let size = DArray::distribute(mesh, &(Tensor::eye(23, DType::F32) * 23.0), &layout)?;
    let gram = a.matmul(&a.t()?)?.zip(&size, |x, y| x + y)?;
    let parts = [gram.cholesky()?.collect()?, a.sum()?, a.slice((1..20, 3..))?.to(&layout)?.collect()?];
    Ok(parts.iter().map(Tensor::to_vec::<f32>).collect::<Result<Vec<Vec<f32>>>>()?.concat())
}

#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    Device::get("cpu").unwrap().scope(|| {
        let mesh = Mesh::open().unwrap();
        let group = mesh.group().expect("a launcher started several processes");
        let name = format!("{} of {}", group.rank(), group.ranks());
        std::fs::write(folder.join(name), bits(&results(&mesh).unwrap())).unwrap();
        group.close().unwrap();
    });
}

#[test]
fn processes_compute_the_bits_of_one_process() {
    if !cfg!(feature = "mpi") {
        println!("SKIPPED: arrays in several processes: built without the feature `mpi`");
        return;
    }
    let here = Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if here.is_err() {
        println!("SKIPPED: arrays in several processes: mpirun is not installed; run `cargo xtask install`");
        return;
    }
    let expected = Device::get("cpu").unwrap().scope(|| results(&Mesh::open().unwrap()).unwrap());
    let folder = std::env::temp_dir().join(format!("panoply-mesh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for ranks in [2, 4] {
        let mut command = Command::new("mpirun");
        command.args(["-n", &ranks.to_string(), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
        command.arg(std::env::current_exe().unwrap()).args(["processes::child", "--exact"]);
        command.env(CHILD, &folder).env("PANOPLY_THREADS", "1").stdin(Stdio::null());
        let output = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        for rank in 0..ranks {
            let have = std::fs::read_to_string(folder.join(format!("{rank} of {ranks}"))).unwrap();
            assert!(have == bits(&expected), "rank {rank} of {ranks}: {have}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
