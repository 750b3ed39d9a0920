/** What an attacker would change in a signed delivery, and whether the signature must notice. */
import type { Delivery, Oracle, SignedDelivery } from './oracle.ts';
import { toNanoseconds, toSeconds } from './recipes.ts';

/** One change. */
export interface Mutation {
  readonly name: string;
  readonly isCovered: boolean;
  readonly signed: SignedDelivery;
}

/** Every change of a part that the delivery has. */
export function listMutations({ covers }: Oracle, delivery: Delivery, signed: SignedDelivery): Mutation[] {
  const { id, timestamp } = delivery;
  const separator = signed.url.includes('?') ? '&' : '?';
  const body = changeBody(signed);
  const mutations: Mutation[] = [
    { name: 'the body', isCovered: covers.body, signed: { ...signed, body } },
    { name: 'the URL', isCovered: covers.url, signed: { ...signed, url: `${signed.url}${separator}zzz=1` } },
  ];
  const withOtherId = replaceInHeaders(signed, [[id, 'evt_another']]);
  if (withOtherId) mutations.push({ name: 'the id', isCovered: covers.id, signed: withOtherId });
  const later = timestamp + 1000;
  const withOtherTime = replaceInHeaders(signed, [
    [toNanoseconds(timestamp), toNanoseconds(later)],
    [new Date(timestamp).toISOString(), new Date(later).toISOString()],
    [new Date(timestamp).toUTCString(), new Date(later).toUTCString()],
    [String(timestamp), String(later)],
    [toSeconds(timestamp), toSeconds(later)],
  ]);
  if (withOtherTime) mutations.push({ name: 'the time', isCovered: covers.timestamp, signed: withOtherTime });
  return mutations;
}

/** Another field, in JSON as in a form: Zoom's library serialises anew, so that a blank more would not do. */
export function changeBody({ headers, body }: SignedDelivery): Buffer {
  const text = body.toString();
  const isForm = headers['content-type'] === 'application/x-www-form-urlencoded';
  return Buffer.from(isForm ? `${text}&zzz=1` : text.replace('{', '{"zzz":1,'));
}

function replaceInHeaders(
  signed: SignedDelivery,
  replacements: readonly (readonly [string, string])[],
): SignedDelivery | undefined {
  let isChanged = false;
  const headers = Object.entries(signed.headers).map(([name, value]) => {
    const [from, to] = replacements.find(([text]) => value.includes(text)) ?? ['', ''];
    if (from === '') return [name, value];
    isChanged = true;
    return [name, value.replace(from, to)];
  });
  return isChanged ? { ...signed, headers: Object.fromEntries(headers) } : undefined;
}
