module github.com/warrenmq/warren

go 1.26
