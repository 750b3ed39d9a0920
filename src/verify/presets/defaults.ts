/** Common defaults of presets. */
import type { Tolerance } from '../schemes/description.ts';

const MINUTE_MS = 60_000;

/** A tolerance in minutes, the same in both directions by default. */
export function minutes(past: number, future = past): Tolerance {
  return { past: past * MINUTE_MS, future: future * MINUTE_MS };
}

/** The tolerance that Standard Webhooks recommends. */
export const FIVE_MINUTES: Tolerance = minutes(5);

export const JSON_ONLY: readonly string[] = ['application/json'];
export const JSON_OR_FORM: readonly string[] = ['application/json', 'application/x-www-form-urlencoded'];
/** For senders that let users choose the format. */
export const JSON_XML_OR_FORM: readonly string[] = [...JSON_OR_FORM, 'application/xml', 'text/xml'];
/** For senders that let users choose the method. */
export const ANY_METHOD: readonly string[] = ['POST', 'PUT', 'PATCH', 'DELETE', 'GET'];
/** Without multipart, whose files are not among the fields. */
export const URL_ENCODED: readonly string[] = ['application/x-www-form-urlencoded'];
export const FORMS: readonly string[] = ['application/x-www-form-urlencoded', 'multipart/form-data'];
