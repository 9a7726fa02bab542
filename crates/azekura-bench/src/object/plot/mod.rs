//! Latencies by sequence number, as an SVG image.
//!
//! One mark for each operation: its number in the workload to the right, its latency upward. The upper end is
//! fixed by a flag, so that plots of several stores can be laid side by side; how many operations were
//! slower stands in the label, since what is cut off is what one looks for. Each result takes 8 bytes. It measures nothing.

mod svg;

use std::path::PathBuf;

use azekura::error::{Error, Kind, Result};
use clap::{Args, Subcommand};

use super::operation::Outcome;
use crate::outputs::refuse_store;
use crate::report::duration;

/// What is drawn.
#[derive(Clone, Debug, Subcommand)]
pub enum PlotCommand {
    /// Write an SVG image
    Svg {
        /// Where to
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How
        #[command(flatten)]
        plan: PlotPlan,
        /// Pixels from left to right
        #[arg(long, value_name = "N", default_value_t = 1200)]
        width: usize,
        /// Pixels from top to bottom
        #[arg(long, value_name = "N", default_value_t = 800)]
        height: usize,
    },
}

/// How it is drawn.
#[derive(Args, Clone, Debug, Default)]
pub struct PlotPlan {
    /// What stands above it
    #[arg(long, value_name = "TEXT", default_value = "")]
    title: String,
    /// The latency at the upper end, in seconds; [default: the longest]
    #[arg(long, value_name = "SECONDS")]
    y_max: Option<f64>,
    /// Equal distances are equal ratios
    #[arg(long)]
    logscale: bool,
}

/// Hands over results, one by one.
type Results = fn(&mut dyn FnMut(Outcome) -> Result<()>) -> Result<()>;

/// Draws the results.
pub fn plot(command: &PlotCommand, outcomes: Results) -> Result<()> {
    let PlotCommand::Svg {
        file,
        plan,
        width,
        height,
    } = command;
    if !(200..=10_000).contains(width) || !(150..=10_000).contains(height) {
        return Err(Error::new(
            Kind::Invalid,
            "an image has 200 x 150 to 10000 x 10000 pixels",
        ));
    }
    let refused = "cannot write the image";
    refuse_store(file, refused)?;
    let text = svg::draw(&Figure::new(plan, outcomes)?, *width, *height);
    std::fs::write(file, text).map_err(|error| Error::io(refused, error).at(file))
}

/// A mark: a number in the workload, and seconds.
type Mark = (u32, f32);

/// What is drawn.
struct Figure {
    title: String,
    marks: Vec<Mark>,
    /// The largest sequence number.
    last: u32,
    scale: Scale,
    /// Marks above the scale.
    over: u64,
}

/// Which latency stands at which height.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Figure {
    fn new(
        plan: &PlotPlan,
        outcomes: impl FnOnce(&mut dyn FnMut(Outcome) -> Result<()>) -> Result<()>,
    ) -> Result<Self> {
        if plan
            .y_max
            .is_some_and(|seconds| !(seconds > 0.0 && seconds.is_finite()))
        {
            return Err(Error::new(
                Kind::Invalid,
                "the upper end is more than 0 seconds",
            ));
        }
        let (mut marks, mut last) = (Vec::new(), 0);
        outcomes(&mut |outcome| {
            let number = u32::try_from(outcome.seqno)
                .map_err(|_| Error::new(Kind::TooLarge, "a plot has at most 2^32 operations"))?;
            last = last.max(number);
            marks.push((number, outcome.elapsed as f32));
            Ok(())
        })?;
        let seconds = || marks.iter().map(|(_, seconds): &Mark| f64::from(*seconds));
        let longest = seconds().fold(0.0, f64::max);
        let high = plan.y_max.unwrap_or(longest).max(1e-9);
        let over = seconds().filter(|&seconds| seconds > high).count() as u64;
        let above_zero = seconds().filter(|&seconds| seconds > 0.0);
        let least = above_zero.fold(high, f64::min);
        // The power of ten below the least, and at least one of them below the upper end.
        let low = 10_f64.powf(least.log10().floor()).min(high / 10.0);
        let low = if plan.logscale { low } else { 0.0 };
        let scale = Scale {
            low,
            high,
            log: plan.logscale,
        };
        Ok(Self {
            title: plan.title.clone(),
            marks,
            last,
            scale,
            over,
        })
    }

    /// What stands at the upward axis.
    fn label(&self) -> String {
        format!(
            "latency ({} of {} over {})",
            self.over,
            self.marks.len(),
            duration(self.scale.high)
        )
    }

    /// Where marks are: columns and rows of a grid, rows from below.
    fn cells(&self, columns: usize, rows: usize) -> impl Iterator<Item = (usize, usize)> {
        self.marks.iter().filter_map(move |&(number, seconds)| {
            let height = self.scale.height(f64::from(seconds))?;
            let across = f64::from(number) / (f64::from(self.last) + 1.0);
            Some((
                place(across, columns).min(columns - 1),
                place(height, rows).min(rows - 1),
            ))
        })
    }
}

impl Scale {
    /// The part of the height at which `seconds` is; `None` above the end.
    fn height(self, seconds: f64) -> Option<f64> {
        let height = if self.log {
            (seconds.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            seconds / self.high
        };
        (seconds <= self.high).then_some(height)
    }

    /// Latencies to be named at the axis: powers of ten, or about five round ones.
    fn ticks(self) -> Vec<f64> {
        if self.log {
            let mut ticks = vec![self.low];
            while ticks[ticks.len() - 1] * 10.0 <= self.high * 1.001 {
                ticks.push(ticks[ticks.len() - 1] * 10.0);
            }
            return ticks;
        }
        round_ticks(self.high)
    }
}

/// A part of `count`, as a whole number.
#[expect(clippy::cast_sign_loss, reason = "no part is negative")]
fn place(part: f64, count: usize) -> usize {
    (part * count as f64) as usize
}

/// About five round numbers from 0 to `high`.
fn round_ticks(high: f64) -> Vec<f64> {
    let rough = high / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let ticks = (0..=20_u32).map(|tick| f64::from(tick) * step);
    ticks.take_while(|&tick| tick <= high * 1.001).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::operation::Method;

    pub(super) fn figure(plan: &PlotPlan, latencies: &[f64]) -> Figure {
        let outcome = |seqno, elapsed| Outcome {
            seqno,
            key: String::new(),
            method: Method::Get,
            start_time: 0.0,
            elapsed,
            exists: None,
            error: None,
        };
        Figure::new(plan, |each| {
            (0..)
                .zip(latencies)
                .try_for_each(|(number, &elapsed)| each(outcome(number, elapsed)))
        })
        .unwrap()
    }

    #[test]
    fn what_is_above_the_fixed_end_is_counted_and_not_drawn() {
        let plan = PlotPlan {
            y_max: Some(0.5),
            ..PlotPlan::default()
        };
        let figure = figure(&plan, &[0.1, 0.5, 0.6, 9.0]);
        assert_eq!(figure.label(), "latency (2 of 4 over 500.00ms)");
        assert_eq!(figure.cells(4, 10).collect::<Vec<_>>(), [(0, 2), (1, 9)]);
    }

    #[test]
    fn on_a_scale_of_ratios_decades_are_equally_high() {
        let plan = PlotPlan {
            logscale: true,
            y_max: Some(1.0),
            ..PlotPlan::default()
        };
        let figure = figure(&plan, &[0.001, 0.01, 0.1, 1.0, 0.0]);
        let rows: Vec<usize> = figure.cells(1, 30).map(|cell| cell.1).collect();
        assert_eq!(rows[3], 29);
        assert!(rows[0] == 0 && rows[4] == 0, "{rows:?}");
        assert!(
            (9..=10).contains(&rows[1]) && (19..=20).contains(&rows[2]),
            "{rows:?}"
        );
        assert_eq!(figure.scale.ticks().len(), 4);
    }

    #[test]
    fn ticks_are_round_and_about_five() {
        assert_eq!(round_ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(round_ticks(7.0), [0.0, 2.0, 4.0, 6.0]);
        let empty = figure(&PlotPlan::default(), &[]);
        assert!(empty.scale.ticks().len() < 12 && empty.cells(2, 2).next().is_none());
    }

    #[test]
    fn an_upper_end_of_nothing_is_refused() {
        let plan = PlotPlan {
            y_max: Some(0.0),
            ..PlotPlan::default()
        };
        let error = Figure::new(&plan, |_| Ok(())).err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid);
    }
}
