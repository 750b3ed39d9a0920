/** Figures as texts. Times are in UTC, as in the log, unless the user asks for local ones. */

import { isBrowser } from './location.ts';

const LOCAL = 'sidegate-local-time';
const MS_PER_MINUTE = 60_000;

/** Whether times are local. */
export function isLocal(): boolean {
  return isBrowser && localStorage.getItem(LOCAL) !== null;
}

/** This browser remembers it. */
export function setLocal(isWanted: boolean): void {
  if (isWanted) localStorage.setItem(LOCAL, '1');
  else localStorage.removeItem(LOCAL);
}

/** `14:03:07.118`; with the date if it was not today, or if the page may stay as it is for days, without JavaScript. */
export function formatTime(instant: string): string {
  const [date = '', time = ''] = toZone(new Date(instant)).split('T');
  const shown = instant.includes('.') ? time : time.replace(FRACTION, '');
  return isBrowser && toZone(new Date()).startsWith(date) ? shown : `${date} ${shown}`;
}

const FRACTION = /\.\d+$/;

/** Without its zone. */
function toZone(at: Date): string {
  const shifted = isLocal() ? new Date(at.getTime() - at.getTimezoneOffset() * MS_PER_MINUTE) : at;
  return shifted.toISOString().slice(0, -1);
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
