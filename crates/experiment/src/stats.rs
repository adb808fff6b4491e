//! Statistics over seeds: mean, sample deviation, Student's t interval, quantiles.
//!
//! Pure arithmetic. The t quantiles come from the exact distribution function (the regularised incomplete beta function
//! as a continued fraction), inverted by bisection, so any number of seeds is served without a table.

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

/// The sample standard deviation (n - 1 below the line); `None` for fewer than two values.
pub fn sample_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= 2)?;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The 95 % confidence interval of the mean by Student's t: (low, high); `None` for fewer than two values.
pub fn interval95(values: &[f64]) -> Option<(f64, f64)> {
    let deviation = sample_deviation(values)?;
    let half = t_quantile(0.975, values.len() - 1) * deviation / (values.len() as f64).sqrt();
    let mean = mean(values)?;
    Some((mean - half, mean + half))
}

/// The `q` quantile, linear between order statistics (Hyndman and Fan's type 7, the default of NumPy and R); `None` of
/// nothing, or if a value is NaN or `q` outside 0..=1.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&q) || values.iter().any(|x| x.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = q * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    // Equal neighbours first: infinities must not turn into NaN.
    if sorted[below] == sorted[above] {
        return Some(sorted[below]);
    }
    Some(sorted[below] + (place - below as f64) * (sorted[above] - sorted[below]))
}

/// The middle value: [`quantile`] at one half.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Jain's fairness index, (sum x)^2 / (n sum x^2): 1 if all are alike, 1/n if one has it all; NaN of nothing, and if all are 0
/// or one is NaN.
pub fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|x| x * x).sum();
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

/// The slope of the least squares line through the points, and the share of the variance it explains (r squared);
/// `None` for fewer than two different x.
pub fn line_fit(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let xs: Vec<f64> = points.iter().map(|p| p.0).collect();
    let ys: Vec<f64> = points.iter().map(|p| p.1).collect();
    let (mx, my) = (mean(&xs)?, mean(&ys)?);
    let sxx: f64 = xs.iter().map(|x| (x - mx).powi(2)).sum();
    let sxy: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    let syy: f64 = ys.iter().map(|y| (y - my).powi(2)).sum();
    // Written so that NaN is refused too.
    if !(sxx > 0.0 && syy.is_finite()) {
        return None;
    }
    Some((sxy / sxx, if syy > 0.0 { sxy * sxy / (sxx * syy) } else { 1.0 }))
}

/// The value below which a Student's t variable with `freedom` degrees of freedom stays with probability `p`.
///
/// # Panics
/// If `p` is not in 0.5..1 or `freedom` is 0.
pub fn t_quantile(p: f64, freedom: usize) -> f64 {
    assert!((0.5..1.0).contains(&p) && freedom > 0, "t quantile of {p} with {freedom} degrees of freedom");
    let (mut low, mut high) = (0.0, 1.0);
    while t_cumulative(high, freedom) < p {
        high *= 2.0;
    }
    // 200 halvings exhaust the 53 bits of any bracket reached above.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if t_cumulative(middle, freedom) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// P(T <= t) for t >= 0.
fn t_cumulative(t: f64, freedom: usize) -> f64 {
    let n = freedom as f64;
    1.0 - 0.5 * incomplete_beta(0.5 * n, 0.5, n / (n + t * t))
}

/// The regularised incomplete beta function I_x(a, b).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side of the mean only; the other follows by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..500 {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            fraction *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

/// The logarithm of the gamma function for x > 0 (Lanczos, g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.5203681218851,
        -1259.1392167224028,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507343278686905,
        -0.13857109526572012,
        9.984_369_578_019_572e-6,
        1.5056327351493116e-7,
    ];
    let x = x - 1.0;
    let base = x + 7.5;
    let sum: f64 = 0.999_999_999_999_809_9
        + TERMS.iter().enumerate().map(|(i, term)| term / (x + 1.0 + i as f64)).sum::<f64>();
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_are_those_of_the_printed_tables() {
        for (freedom, printed) in
            [(1, 12.706205), (2, 4.302653), (4, 2.776445), (7, 2.364624), (9, 2.262157), (19, 2.093024)]
        {
            let ours = t_quantile(0.975, freedom);
            assert!((ours - printed).abs() < 1e-6, "{freedom} degrees: {ours} is not {printed}");
        }
        assert!((t_quantile(0.975, 100_000) - 1.959988).abs() < 1e-5, "the normal distribution in the limit");
        assert!((t_quantile(0.95, 10) - 1.812461).abs() < 1e-6);
        assert!(t_quantile(0.5, 3).abs() < 1e-12);
    }

    #[test]
    fn mean_deviation_and_interval_of_five_known_values() {
        let values = [2.0, 4.0, 4.0, 5.0, 10.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(sample_deviation(&values), Some(3.0));
        let (low, high) = interval95(&values).unwrap();
        // 5 -+ 2.776445 * 3 / sqrt(5)
        assert!((low - 1.275_018).abs() < 1e-5 && (high - 8.724_982).abs() < 1e-5, "{low} {high}");
        assert_eq!((mean(&[]), sample_deviation(&[1.0]), interval95(&[1.0])), (None, None, None));
    }

    #[test]
    fn quantiles_lie_between_order_statistics() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.25), Some(1.75));
        assert_eq!(median(&values), Some(2.5));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&values, 1.1), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn fairness_is_one_for_equals_and_falls_to_one_part_of_as_many_as_there_are() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[0.0, 5.0, 0.0, 0.0]), 0.25);
        assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
        assert!(jain(&[]).is_nan() && jain(&[0.0, 0.0]).is_nan() && jain(&[1.0, f64::NAN]).is_nan());
    }

    #[test]
    fn a_line_is_fitted_with_the_share_it_explains() {
        let (slope, explained) = line_fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((slope - 2.0).abs() < 1e-12 && (explained - 1.0).abs() < 1e-12);
        let (slope, explained) = line_fit(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]).unwrap();
        assert!(slope.abs() < 1e-12 && explained < 1e-12);
        assert_eq!(line_fit(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
