//! `panoply verify --largest-radius`: how large the ball of a claim can be.

use std::process::ExitCode;

use panoply::verify::claim::Claim;
use panoply::verify::radius::{self, Radius};
use panoply::{Error, Result};
use serde_json::{Value, json};

use super::network::Network;
use super::{Centered, Question, UNDECIDED, VerifyCommand, centered, search};
use crate::console::escaped;
use crate::output::{self, DeviceSelection};

/// Searches the radii of all claims and prints them.
pub fn run(
    arguments: &VerifyCommand,
    network: &Network,
    claims: &[Claim],
    choice: &DeviceSelection,
) -> Result<ExitCode> {
    let claims = centered(network, claims)?;
    // A search takes up to the time limit of its claim, so all claims are checked first.
    claims.iter().try_for_each(|claim| claim.ball().and_then(|_| claim.property(network, None)).map(drop))?;
    let mut answers = Vec::new();
    for claim in &claims {
        let found = largest(arguments, network, claim)?;
        if !arguments.json {
            tell(arguments, &claim.claim.name, &found);
        }
        answers.push((claim.claim.name.clone(), found));
    }
    let is_exact = answers.iter().all(|(_, found)| found.is_exact);
    if arguments.json {
        let claims: Vec<Value> = answers.iter().map(|(name, found)| entry(name, found)).collect();
        output::print_json(&choice.document(json!({
            "claims": claims,
            "model": arguments.model.to_string_lossy(),
            "property": arguments.property.to_string_lossy(),
            "arithmetic": arguments.arithmetic.words().0,
        })));
    }
    Ok(if is_exact { ExitCode::SUCCESS } else { ExitCode::from(UNDECIDED) })
}

impl Centered<'_> {
    /// Returns the radius of the ball, the largest radius that can matter, and the center; an error if the claim has no ball.
    fn ball(&self) -> Result<(f64, f64, &[f32])> {
        match (self.claim.radius(), &self.center) {
            (Some((radius, largest)), Some(center)) => Ok((radius, largest, center)),
            _ => Err(Error::mistake(format!(
                "{}: `--largest-radius` needs a `point` or an `example`, and a `ball`",
                self.claim.name
            ))),
        }
    }
}

fn largest(arguments: &VerifyCommand, network: &Network, centered: &Centered<'_>) -> Result<Radius> {
    let (claim, (first, whole, center)) = (centered.claim, centered.ball()?);
    let mut verify = |radius: f64, seconds: f64| {
        let property = centered.property(network, Some(radius))?;
        search(arguments, network, &Question { name: Some(claim.name.clone()), property, seconds })
    };
    let distance = |point: &[f32]| {
        let differences = point.iter().zip(center).map(|(x, center)| (f64::from(*x) - f64::from(*center)).abs());
        differences.fold(0.0, f64::max)
    };
    radius::search(&mut verify, &distance, first, whole, claim.seconds.unwrap_or(arguments.seconds))
}

fn tell(arguments: &VerifyCommand, name: &str, found: &Radius) {
    let (_, summary) = arguments.arithmetic.words();
    let proven = match found.proven {
        Some(radius) => format!("proven {summary}, up to the radius {radius}"),
        None => "not proven for any radius that was tried".to_string(),
    };
    let violated = match &found.violated {
        Some((radius, _)) => format!("the nearest counterexample found is at {radius}"),
        None => "no counterexample was found".to_string(),
    };
    println!("{}: {proven}; {violated}", escaped(name));
    note!("{} radii were tried", found.queries);
}

fn entry(name: &str, found: &Radius) -> Value {
    let violated = found.violated.as_ref();
    json!({
        "name": name,
        "largest_proven_radius": found.proven,
        "smallest_violated_radius": violated.map(|(radius, _)| radius),
        "counterexample": violated.map(|(_, point)| json!({"input": point.input, "output": point.output})),
        "is_exact": found.is_exact,
        "queries": found.queries,
    })
}
