/** The events that the request lifecycle logs, besides requests. */

export type PipelineLogEvent = 'internal_error';
