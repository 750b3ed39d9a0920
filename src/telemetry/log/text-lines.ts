/** Formats lines of the log for people. */
import { toInstant } from '../../core/clock.ts';

const TIME_START = 'YYYY-MM-DDT'.length;
const TIME_END = TIME_START + 'HH:MM:SS'.length;
const LEVEL_WIDTH = 5;
const HEX = 16;

/** `21:30:05 info  request route=stripe status=200 …` for each line of JSON; times are in UTC. */
export function toTextLines(lines: string): string {
  return lines.replace(/[^\n]+/g, toTextLine);
}

function toTextLine(line: string): string {
  const { level, time, service: _, version, msg, ...fields } = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const start = `${toInstant(Number(time)).slice(TIME_START, TIME_END)} ${String(level).padEnd(LEVEL_WIDTH)} ${String(msg)}`;
  return [start, ...Object.entries(fields).map(([name, value]) => `${name}=${toWord(value)}`)].join(' ');
}

/** As in JSON unless it is one word: what clients send can neither add a line nor control the terminal. */
function toWord(value: unknown): string {
  if (typeof value === 'string' && /^[\w./:@+-]+$/.test(value)) return value;
  return JSON.stringify(value).replace(/[\x7f-\x9f]/g, (char) => `\\u00${char.charCodeAt(0).toString(HEX)}`);
}
