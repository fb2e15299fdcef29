# The book in a container:  docker build -t attnconv . && docker run --rm -p 8000:8000 attnconv
FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /attnconv
COPY . .
RUN make book
EXPOSE 8000
CMD ["make", "serve", "BIND=0.0.0.0"]
