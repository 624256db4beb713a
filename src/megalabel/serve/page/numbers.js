// Formats numbers.

const LOCALE = "en";
const whole = new Intl.NumberFormat(LOCALE);
const percents = new Intl.NumberFormat(LOCALE, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** 4236 -> "4,236" */
export const count = (value) => whole.format(value);

/** 1, "text" -> "1 text"; 2, "text" -> "2 texts" */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** 0.8312 -> "83.1%"; what would round to zero is "<0.1%" */
export const percent = (value) => (value > 0 && value < 0.0005 ? "<0.1%" : percents.format(value));

/** 0.83124 -> "0.831", with a true minus sign; null, from a head that does not know the label, -> "none" */
export const decimal = (value) =>
  value === null ? "none" : value.toFixed(Math.abs(value) >= 100 ? 1 : 3).replace("-", "−");

/** 0.83124 -> "+0.831" */
export const signed = (value) => (value > 0 ? "+" : "") + decimal(value);
