/** Figures as texts. Times are in UTC, as in the log. */

/** `14:03:07.118`; with the date if it was not today. */
export function formatTime(instant: string): string {
  const [date = '', time = ''] = instant.replace('Z', '').split('T');
  return date === new Date().toISOString().slice(0, 10) ? time : `${date} ${time}`;
}

/** `0.61 ms`, `38 ms`, `1.4 s` */
export function formatMs(ms: number | null): string {
  if (ms === null) return '–';
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(2) : Math.round(ms)} ms`;
}

/** `1.5 KiB` */
export function formatBytes(bytes: number | null): string {
  if (bytes === null) return '–';
  if (bytes < 1_024) return `${bytes} B`;
  const kib = bytes / 1_024;
  return kib < 1_024 ? `${kib.toFixed(1)} KiB` : `${(kib / 1_024).toFixed(1)} MiB`;
}

const WITHOUT_ZONE = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;

/** The input of a browser has no zone; the page asks for UTC. */
export function toInstant(text: string | undefined): string | undefined {
  if (text === undefined || !WITHOUT_ZONE.test(text) || text.endsWith('Z')) return text;
  const time = new Date(`${text}Z`);
  // The API says what is wrong with a day that does not exist.
  return Number.isNaN(time.getTime()) ? text : time.toISOString();
}

/** `bad_signature` as `bad signature` */
export function toWords(code: string): string {
  return code.replaceAll('_', ' ');
}
