/** Checks that the verified content is an event envelope whose id is the signed one, if the route requires it. */
import { isUtf8 } from 'node:buffer';
import { findMembers, isJson, isObject, type JsonSpan, readScalar, toWholeSpan } from '../../../core/json-scan.ts';
import { refuse } from '../../../core/refusal.ts';
import type { VerifiedEventGate } from './gate.ts';

/** Requires a JSON object {type, id, created, data} whose id equals the Webhook-Id. */
export function createEnvelopeGate(): VerifiedEventGate {
  return {
    check({ body, id }) {
      const problem = findEnvelopeProblem(body, id);
      return problem === undefined ? undefined : refuse('envelope_mismatch', 'envelope_mismatch', problem);
    },
  };
}

function findEnvelopeProblem(body: Buffer, id: string | undefined): string | undefined {
  const whole = toWholeSpan(body);
  if (!isUtf8(body) || !isJson(body) || !isObject(body, whole)) return 'the body is not a JSON object in UTF-8';
  const [type, found, created, data] = findMembers(body, whole, ['type', 'id', 'created', 'data']);
  if (typeof readValue(body, type) !== 'string') return 'type is not a string';
  const read = readValue(body, found);
  if (typeof read !== 'string') return 'id is not a string';
  if (typeof readValue(body, created) !== 'number') return 'created is not a number';
  if (!isObject(body, data)) return 'data is not an object';
  return read === id ? undefined : 'id differs from Webhook-Id';
}

function readValue(body: Buffer, value: JsonSpan | undefined): unknown {
  return value === undefined ? undefined : readScalar(body, [], value);
}
