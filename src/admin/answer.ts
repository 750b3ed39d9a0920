/** Answers of the admin port, as handlers give them. */

/** What is answered; the server adds what all answers have. */
export interface Answer {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const PLAIN = 'text/plain; charset=utf-8';

/** A line for people and scripts: what is so, and how to mend it where it should not be. */
export function toPlain(status: number, line: string, headers?: Readonly<Record<string, string>>): Answer {
  const answer = { status, contentType: PLAIN, text: `${line}\n` };
  return headers === undefined ? answer : { ...answer, headers };
}

/** A JSON value. */
export function toJson(value: unknown, contentType = 'application/json'): Answer {
  return { status: 200, contentType, text: `${JSON.stringify(value, undefined, 2)}\n` };
}
