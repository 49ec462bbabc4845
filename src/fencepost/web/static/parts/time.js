// Durations and moments as text, in the words of the commands (diagnose/words.py).
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

// `40 ms`, `2.5 s`, `3 m 20 s`, `7 d 3 h`.
export function duration(ms) {
  ms = Math.max(ms, 0);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 9950) return `${Math.round(ms / 100) / 10} s`;
  ms = Math.round(ms / 1000) * 1000;
  for (let i = 0; i < UNITS.length - 1; i++) {
    const [name, size] = UNITS[i];
    const [nextName, nextSize] = UNITS[i + 1];
    if (ms >= size) {
      const rest = Math.floor((ms % size) / nextSize);
      return `${Math.floor(ms / size)} ${name}` + (rest ? ` ${rest} ${nextName}` : "");
    }
  }
  return `${ms / 1000} s`;
}

// A moment in UTC: `2026-03-01 12:00:03.250Z`. Producers choose timestamps, so some have no date.
export function instant(ms) {
  const moment = new Date(ms);
  return Number.isNaN(moment.getTime()) ? `${ms} ms since 1970` : moment.toISOString().replace("T", " ");
}

// The time of day where the reader is: `12:01:07`.
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
