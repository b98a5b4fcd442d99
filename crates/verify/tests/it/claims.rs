//! Claims in TOML: parsing, and verdicts compared with dense grids and values computed by hand.

use panoply_tensor::{Device, Result, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::claim::{self, Claim};
use panoply_verify::{Arithmetic, Verdict};

use super::properties::limited::{Random, each_seed, in_child, mutate};
use super::{Mlp, answer};

fn one(text: &str) -> Claim {
    claim::parse(&format!("[[claim]]\n{text}")).unwrap().swap_remove(0)
}

/// Returns the verdict about a function of a vector.
fn verdict(run: &dyn Fn(&Tensor) -> Result<Tensor>, inputs: usize, text: &str) -> Verdict {
    let claim = one(text);
    let center = claim.center(&|_| Ok(vec![0.5; inputs])).unwrap();
    let point = center.clone().unwrap_or_else(|| vec![0.0; inputs]);
    let output = run(&Tensor::from_slice(&point, [inputs])).unwrap().to_vec::<f32>().unwrap();
    answer(run, &claim.property(inputs, center.as_deref(), &output).unwrap(), Arithmetic::Float)
}

#[test]
fn errors_name_the_claim_and_the_key() {
    let ball = "point = [0.5]\nball = 0.1\n";
    for (text, expected) in [
        ("[[claim]", "1: "),
        ("x = 1", "unknown key `x`"),
        ("", "`[[claim]]` is missing: a file of claims has at least one"),
        ("claim = 3", "`[[claim]]` is missing: a file of claims has at least one"),
        ("[[claim]]\nhold = 1", "claim 1: unknown key `hold`"),
        ("[[claim]]\ninputs = [[0, 1]]", "claim 1: `holds` is missing"),
        ("[[claim]]\nholds = \"finite\"", "exactly one of `inputs`, `point` and `example`"),
        ("[[claim]]\nholds = \"finite\"\ninputs = [[1, 0]]", "`inputs` has an empty range: 1 is above 0"),
        ("[[claim]]\nholds = \"finite\"\ninputs = [[0, nan]]", "`inputs` has a value that is not finite"),
        ("[[claim]]\nholds = \"finite\"\ninputs = []", "`inputs` needs ranges"),
        ("[[claim]]\nholds = \"finite\"\npoint = [0.5]", "needs a `ball`"),
        ("[[claim]]\nholds = \"finite\"\npoint = [0.5]\nball = -1", "`ball` is negative"),
        ("[[claim]]\nholds = \"finite\"\nexample = -1\nball = 1", "`example` is not the index of an example"),
        ("[[claim]]\nholds = \"class unchanged\"\ninputs = [[0, 1]]", "`class unchanged` needs a `point`"),
        (&format!("[[claim]]\n{ball}holds = \"stable\""), "expected `finite`, `within 0..1`"),
        (&format!("[[claim]]\n{ball}holds = \"within 1..0\""), "`within` has an empty range"),
        (&format!("[[claim]]\n{ball}holds = \"y[0] * y[1] > 0\""), "is not linear"),
        (&format!("[[claim]]\n{ball}holds = \"x[0] > 0\""), "reads no output"),
        (&format!("[[claim]]\n{ball}holds = \"y[0] + > 0\""), "a term is missing"),
        (&format!("[[claim]]\n{ball}holds = \"y[0] > z\""), "`z` is not a number"),
        (&format!("[[claim]]\n{ball}holds = \"y[-1] > 0\""), "is not a number"),
    ] {
        let message = claim::parse(text).unwrap_err().message().to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
    let sizes = |text: &str, inputs: usize| {
        let claim = one(text);
        let center = claim.center(&|_| Ok(vec![0.5; 2])).unwrap();
        claim.property(inputs, center.as_deref(), &[0.0, 1.0]).unwrap_err().message().to_string()
    };
    let message = sizes("inputs = [[0, 1], [0, 1]]\nholds = \"finite\"", 3);
    assert_eq!(message, "claim 1: there are 2 ranges, but the network has 3 inputs");
    let message = sizes("name = \"a\"\nexample = 0\nball = 0.1\nholds = \"finite\"", 3);
    assert_eq!(message, "a: the point has 2 elements, but the network has 3 inputs");
    let message = sizes("inputs = [[0, 1]]\nholds = \"y[2] > 0\"", 3);
    assert_eq!(message, "claim 1: y[2] is out of range: y has 2 elements");
    let message = sizes("example = 0\nball = 0.1\nclip = [2, 3]\nholds = \"finite\"", 2);
    assert_eq!(message, "claim 1: no input is in the ball and in the range `clip`");
}

/// Random and truncated texts are claims or errors.
#[test]
fn malformed_texts_are_refused() {
    let text = "[[claim]]\npoint = [0.5, 1e-3]\nball = 0.02\nclip = [0, 1]\nholds = \"2*y[0] - 1e-3 >= -y[1] + x[0] and y[0] < 3\"\n";
    let mut rng = Rng::seed_from_u64(5);
    for _ in 0..20_000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + (uniform(&mut rng) * 4.0) as usize {
            let at = (uniform(&mut rng) * bytes.len() as f64) as usize;
            match (uniform(&mut rng) * 3.0) as usize {
                0 => bytes[at] = 32 + (uniform(&mut rng) * 95.0) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"[]*+-<>=.e\"0"[(uniform(&mut rng) * 12.0) as usize]),
            }
        }
        if let Ok(claims) = claim::parse(&String::from_utf8(bytes).unwrap()) {
            let center = claims[0].center(&|_| Ok(vec![0.5; 2])).unwrap();
            let _ = claims[0].property(2, center.as_deref(), &[0.0, 1.0]);
        }
    }
}

#[test]
fn verdicts_of_a_function_known_by_hand() {
    Device::get("cpu").unwrap().scope(|| {
        // y = (relu(x₀ + x₁), x₀ - x₁): on [0, 1]², y₀ is in 0..2 and y₁ in -1..1.
        let run = |x: &Tensor| {
            let weight = Tensor::from_slice(&[1f32, 1.0, 1.0, -1.0], [2, 2]);
            let both = x.unsqueeze(0).matmul(&weight).squeeze(0);
            Ok(&both * Tensor::from_slice(&[0f32, 1.0], [2]) + both.relu() * Tensor::from_slice(&[1f32, 0.0], [2]))
        };
        let holds = |holds: &str| verdict(&run, 2, &format!("inputs = [[0.0, 1.0]]\nholds = \"{holds}\""));
        for proven in [
            "finite",
            "within -1.001..2.001",
            "y[0] <= 2.001",
            "y[0] >= y[1] - 1e-3",
            "y[0] - x[0] - x[1] < 0.001 and y[1] > -1.1",
            "2*y[0] + y[1] <= 3*x[0] + x[1] + 1e-3",
        ] {
            assert_eq!(holds(proven), Verdict::Proven, "{proven}");
        }
        for violated in ["within -1..1.9", "y[0] < 1.99", "y[1] > -0.99", "y[0] > y[1] + 0.1", "y[0] < 9 and y[1] >= 0"]
        {
            assert!(matches!(holds(violated), Verdict::Counterexample(_)), "{violated}");
        }
        // The bound is reached, so a counterexample does not exist, and rounding prevents a proof.
        assert!(!matches!(holds("y[0] <= 2"), Verdict::Counterexample(_)));
    });
}

#[test]
fn overflow_violates_finite() {
    Device::get("cpu").unwrap().scope(|| {
        let run = |x: &Tensor| Ok(x * 3e38);
        let set = |hi: f64| format!("inputs = [[0.0, {hi}]]\nholds = \"finite\"");
        assert_eq!(verdict(&|x: &Tensor| Ok(x * 3e37), 1, &set(1.0)), Verdict::Proven);
        assert!(matches!(verdict(&run, 1, &set(2.0)), Verdict::Counterexample(_)));
    });
}

#[test]
fn classes_near_a_point_agree_with_a_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let (mut proven, mut found) = (0, 0);
        for seed in 0..40 {
            let network = Mlp::random(&[2, 10, 8, 3], &mut Rng::seed_from_u64(seed));
            let class = |x: &[f64]| {
                let y = network.output(x);
                (0..3).fold(0, |best, n| if y[n] > y[best] { n } else { best })
            };
            let text = "example = 7\nball = 0.2\nclip = [0.0, 0.65]\nholds = \"class unchanged\"";
            let at = |n: usize| 0.3 + n as f64 / 80.0 * 0.35;
            let before = class(&[0.5; 2]);
            let is_changed = (0..81 * 81).any(|n| class(&[at(n / 81), at(n % 81)]) != before);
            match verdict(&|x| network.forward(x), 2, text) {
                Verdict::Proven => {
                    assert!(!is_changed, "seed {seed}: proven, but the grid has another class");
                    proven += 1;
                }
                Verdict::Counterexample(point) => {
                    let x: Vec<f64> = point.input.iter().map(|x| f64::from(*x)).collect();
                    assert!(x.iter().all(|x| (0.2999..=0.65).contains(x)), "seed {seed}: {x:?} is outside");
                    assert!(class(&x) != before, "seed {seed}: {x:?} has the same class");
                    found += 1;
                }
                Verdict::Undecided(why) => panic!("seed {seed}: {why}"),
            }
        }
        assert!(proven >= 10 && found >= 5, "{proven} proven, {found} counterexamples");
    });
}

/// Mutated files of claims are read or refused in a process with little memory: 300, or 300,000 with `PANOPLY_TEST_FULL=1`. The properties of
/// those that are read have as many inputs and outputs as the network.
#[test]
fn mutated_claims_are_read_or_refused() {
    let Some(folder) = in_child("claims::mutated_claims_are_read_or_refused", "64MiB") else { return };
    let text = "[[claim]]\nname = \"near\"\npoint = [0.5, 0.25, 1.0]\nball = 0.02\nclip = [0.0, 1.0]\nholds = \"class unchanged\"\n\
        [[claim]]\ninputs = [[0.0, 1e0], [-2, 2], [0, 0.5]]\nholds = \"y[0] >= y[1] + 0.1 and 2*y[1] - x[2] < 3\"\nseconds = 10\n\
        [[claim]]\nexample = 3\nball = 1e-3\nholds = \"within -1..2.5\"\n[[claim]]\ninputs = [[0, 1]]\nholds = \"finite\"\n";
    const NUMBERS: [&str; 9] =
        ["0", "-1", "7", "1e3", "1e308", "1e999", "0.5e-9", "4294967296", "99999999999999999999"];
    let path = folder.join("claims.toml");
    let mut parsed = 0;
    each_seed(&folder, "claims.toml", 300_000, |seed| {
        let mut bytes = text.as_bytes().to_vec();
        let random = &mut Random(seed);
        if seed % 2 == 0 {
            mutate(&mut bytes, random);
        } else {
            // Another number in place of a digit, so that the file is still TOML.
            let digits: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
            let at = digits[random.below(digits.len())];
            bytes.splice(at..=at, NUMBERS[random.below(NUMBERS.len())].bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        let claims = match claim::read(&path) {
            Ok(claims) => claims,
            Err(error) => return assert!(!error.message().is_empty(), "seed {seed}"),
        };
        parsed += claims.len();
        for claim in claims {
            let center = claim.center(&|_| Ok(vec![0.5; 3])).unwrap();
            match claim.property(3, center.as_deref(), &[0.25, 1.0]) {
                Ok(property) => assert_eq!((property.inputs, property.outputs), (3, 2), "seed {seed}"),
                Err(error) => assert!(!error.message().is_empty(), "seed {seed}"),
            }
        }
    });
    assert!(parsed > 50, "{parsed} claims were read");
}
