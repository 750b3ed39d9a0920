/** What happened in a simulation: a hash of everything, and the last lines for people. */

export class Trace {
  /** The number of last lines that are kept. */
  kept = 200;
  readonly #lines: string[] = [];
  #first = 0x811c9dc5;
  #second = 0x1b873593;

  /** Mixes an executed event into the hash. */
  mix(time: number, value: number): void {
    // Microseconds: times differ by less than a millisecond.
    const scaled = Math.round(time * 1_000);
    this.#add(scaled >>> 0);
    this.#add(Math.floor(scaled / 4_294_967_296) ^ value);
  }

  add(time: number, text: string): void {
    const line = `${formatTime(time)} ${text}`;
    for (let at = 0; at < line.length; at++) this.#add(line.charCodeAt(at));
    this.#lines.push(line);
    if (this.#lines.length > 2 * this.kept) this.#lines.splice(0, this.kept);
  }

  get hash(): string {
    return [this.#first, this.#second].map((part) => (part >>> 0).toString(16).padStart(8, '0')).join('');
  }

  get tail(): readonly string[] {
    return this.#lines.slice(-this.kept);
  }

  #add(value: number): void {
    this.#first = Math.imul(this.#first ^ value, 0x01000193);
    const turned = Math.imul((this.#second << 13) | (this.#second >>> 19), 5) + 0xe6546b64;
    this.#second = turned ^ Math.imul(value, 0xcc9e2d51);
  }
}

function formatTime(milliseconds: number): string {
  const hours = Math.floor(milliseconds / 3_600_000);
  const minutes = Math.floor(milliseconds / 60_000) % 60;
  const seconds = (milliseconds / 1_000) % 60;
  return `${hours}:${String(minutes).padStart(2, '0')}:${seconds.toFixed(4).padStart(7, '0')}`;
}
